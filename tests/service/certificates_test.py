#!/usr/bin/env python3
"""Certificates from outside: `whet pki`, and the programs of a fleet that use what it makes."""

import json
import os
import stat
import time
import unittest

from cli_case import CliCase, conv_model, read

ELSEWHERE = '192.0.2.1'  # an address for documents: nobody is there


class PkiCase(CliCase):

    def pki(self, *args):
        r = self.run_whet('pki', *args, '--ca', 'ca')
        self.assertEqual(r.returncode, 0, '%s\n%s' % (args, r.stderr))
        return r.stdout

    def bundle(self, role, name):
        return self.path('ca/bundles/%s-%s' % (role, name))

    def mode(self, path):
        return stat.S_IMODE(os.stat(self.path(path)).st_mode)


class PkiTest(PkiCase):

    def test_a_ca_makes_bundles_offline_and_overwrites_nothing(self):
        self.assertIn('keep the folder offline', self.pki('init'))
        self.expect(2, 'nothing of it is overwritten', 'pki', 'init', '--ca', 'ca')
        self.expect(2, '--for NAME', 'pki', 'issue', 'worker', 'rack1', '--ca', 'ca')
        self.pki('issue', 'server', 'lab')
        self.assertIn("carry '", self.pki('issue', 'worker', 'rack1'))
        self.expect(2, 'pki renew worker rack1', 'pki', 'issue', 'worker', 'rack1', '--ca', 'ca')
        for file in ['ca/ca.key', 'ca/bundles/worker-rack1/identity.pem', 'ca/bundles/server-lab/identity.pem']:
            self.assertEqual(self.mode(file), 0o600, file)
        self.assertEqual(self.mode('ca/bundles/worker-rack1'), 0o700)
        self.assertFalse(os.path.exists(self.path('ca/bundles/server-lab/ca.key')))
        self.assertEqual(read(self.path('ca/bundles/worker-rack1/servers')), b'lab\n')
        self.assertIn('talks to lab', self.run_whet('pki', 'show', self.bundle('worker', 'rack1')).stdout)
        shown = json.loads(self.run_whet('pki', 'show', self.bundle('worker', 'rack1'), '--json', '-').stdout)
        self.assertEqual((shown['role'], shown['name'], shown['renewal_due'], shown['servers']), ('worker', 'rack1', False, ['lab']))
        self.assertAlmostEqual(shown['not_after_s'] - time.time(), 90 * 24 * 3600, delta=3600)
        self.assertIn('nothing is due', self.pki('renew'))
        old = read(self.path('ca/bundles/worker-rack1/identity.pem'))
        self.pki('renew', 'worker', 'rack1')
        self.assertNotEqual(read(self.path('ca/bundles/worker-rack1/identity.pem')), old)
        self.pki('deny', 'worker', 'rack1')
        self.expect(2, 'denied for good', 'pki', 'renew', 'worker', 'rack1', '--ca', 'ca')
        issued = json.loads(self.run_whet('pki', 'show', '--ca', 'ca', '--json', '-').stdout)['issued']
        self.assertEqual([(i['role'], i['name'], i['latest'], i['denied']) for i in issued],
                         [('server', 'lab', True, False), ('worker', 'rack1', False, True), ('worker', 'rack1', True, True)])

    def test_what_cannot_be_is_named(self):
        self.expect(2, 'whet pki init', 'pki', 'show', '--ca', 'none')
        self.pki('init')
        for args, fragment in [(['issue', 'king', 'a'], 'the roles are admin, client'), (['issue', 'client', 'Alice'], 'lower-case'),
                               (['issue', 'client', '../x'], 'lower-case'), (['issue', 'client'], 'lower-case'),
                               (['issue', 'client', 'a', '--for', 'B'], 'lower-case'), (['deny', 'serial:xyz'], 'hex digits'),
                               (['init', 'x'], 'no name')]:
            self.expect(2, fragment, 'pki', *args, '--ca', 'ca')
        self.expect(2, '--days', 'pki', 'issue', 'client', 'a', '--ca', 'ca', '--days', '100000')
        os.chmod(self.path('ca/ca.key'), 0o644)
        self.expect(2, 'chmod 600', 'pki', 'issue', 'client', 'a', '--ca', 'ca')


class TlsFleetTest(PkiCase):

    def setUp(self):
        super().setUp()
        self.pki('init')
        for role, name in [('server', 'lab'), ('tracker', 'registry'), ('worker', 'rack1'), ('worker', 'rack2'), ('client', 'alice'), ('admin', 'root')]:
            self.pki('issue', role, name)

    def here(self, address):
        return '127.0.0.1:' + address.rsplit(':', 1)[1]

    def devices(self, tracker, role='client', name='alice'):
        r = self.run_whet('devices', '--tracker', tracker, '--json', '-', '--tls', self.bundle(role, name))
        return json.loads(r.stdout)['devices'] if r.returncode == 0 else []

    def start_server(self, *args):
        server = self.start('tuner-server', '--tracker', ':0', '--listen', '0.0.0.0:0', '--advertise', '127.0.0.1:0', '--db', 'tuning.db', '--tls',
                            self.bundle('server', 'lab'), *args)
        return server, self.here(server.listening('tracker')), self.here(server.listening('server'))

    def start_worker(self, tracker, name):
        worker = self.start('rpc-worker', '--tracker', tracker, '--state-dir', 'state-' + name, '--tls', self.bundle('worker', name))
        self.wait_until(lambda: any(d['device_id'].startswith(name + '.') for d in self.devices(tracker)))
        return worker

    def test_beyond_loopback_nothing_listens_and_nothing_dials_without_certificates(self):
        refusals = [('rpc-tracker', '--listen', '0.0.0.0:9190'), ('rpc-tracker', '--listen', '[::]:9190'), ('rpc-tracker', '--listen', ELSEWHERE + ':0'),
                    ('tuner-server', '--listen', '0.0.0.0:9190', '--db', 'x.db'), ('tuner-server', '--tracker', ELSEWHERE + ':9190', '--db', 'x.db'),
                    ('rpc-worker', '--tracker', ELSEWHERE + ':9190'), ('whet', 'devices', '--tracker', ELSEWHERE + ':9190'),
                    ('whet', 'jobs', '--server', ELSEWHERE + ':9191')]
        for program, *args in refusals:
            refused = self.start(program, *args)
            self.assertEqual(refused.wait(), 2, (program, args))
            self.assertIn('--tls DIR', refused.errors())
        self.assertFalse(os.path.exists(self.path('x.db')))

    def test_a_bundle_that_is_not_as_it_should_be_is_refused_in_words(self):
        server = self.bundle('server', 'lab')
        cases = [('rpc-tracker', server, 'is for server/lab'), ('tuner-server', self.bundle('worker', 'rack1'), 'is for worker/rack1'),
                 ('rpc-tracker', 'nowhere', "cannot read 'nowhere'"), ('rpc-worker', self.bundle('client', 'alice'), 'is for client/alice')]
        for program, bundle, fragment in cases:
            refused = self.start(program, '--tls', bundle)
            self.assertEqual(refused.wait(), 2, (program, bundle))
            self.assertIn(fragment, refused.errors())
        listening = ['tuner-server', '--listen', '0.0.0.0:0', '--db', 'x.db', '--tls', server]
        for args, fragment in [([], '--advertise'), (['--advertise', '127.0.0.1:0', '--deny', 'nowhere'], "no deny list 'nowhere'"),
                               (['--advertise', '127.0.0.1:0', '--deny', self.path('bad', b'whom\n')], 'line 1'),
                               (['--advertise', '127.0.0.1:0', '--max-connections', '0'], '--max-connections')]:
            refused = self.start(*listening, *args)
            self.assertEqual(refused.wait(), 2, args)
            self.assertIn(fragment, refused.errors())
        os.chmod(os.path.join(server, 'identity.pem'), 0o640)
        refused = self.start(*listening, '--advertise', '127.0.0.1:0')
        self.assertEqual(refused.wait(), 2)
        self.assertIn('chmod 600', refused.errors())
        self.expect(2, '--deny has no use', '--listen', ':0', '--deny', 'x', program=os.path.join(os.environ['WHET_BIN_DIR'], 'rpc-tracker'))

    def test_a_fleet_with_certificates_tunes_and_a_denied_worker_is_out(self):
        server, tracker, address = self.start_server()
        workers = [self.start_worker(tracker, name) for name in ['rack1', 'rack2']]
        client = ['--tls', self.bundle('client', 'alice')]
        self.path('model.onnx', conv_model())
        tuned = self.start('whet', 'tune', 'model.onnx', '--key', 'local', '--server', address, '--trials', '4', '--json', 'tune.json', *client)
        self.assertEqual(tuned.wait(120), 0, tuned.errors() + server.errors())
        self.assertGreaterEqual(json.loads(read(self.path('tune.json')))['trials'], 4)
        self.assertIn('by=client/alice', server.errors())

        # Without a certificate, or with a worker's, nobody asks here.
        self.expect(3, 'cannot reach', 'jobs', '--server', address)
        self.expect(2, 'is for worker/rack1', 'jobs', '--server', address, '--tls', self.bundle('worker', 'rack1'))
        # What is started on this machine is not of the fleet.
        r = self.run_whet('tune', 'model.onnx', '--db', 'here.db', '--trials', '3', '--json', '-', env={'WHET_TLS': self.bundle('client', 'alice')})
        self.assertEqual(r.returncode, 0, r.stderr)

        self.pki('deny', 'worker', 'rack1')
        os.replace(self.path('ca/denied'), os.path.join(self.bundle('server', 'lab'), 'denied'))
        self.wait_until(lambda: 'worker/rack1 is denied' in server.errors())
        self.wait_until(lambda: [d['device_id'][:6] for d in self.devices(tracker)] == ['rack2.'], 60)
        tuned = self.start('whet', 'tune', 'model.onnx', '--key', 'local', '--server', address, '--trials', '8', *client)
        self.assertEqual(tuned.wait(120), 0, tuned.errors())
        self.assertEqual(workers[1].stop(), 0, workers[1].errors())
        self.assertEqual(server.stop(), 0, server.errors())

    def test_a_tracker_of_its_own(self):
        tracker_program = self.start('rpc-tracker', '--listen', '0.0.0.0:0', '--state-dir', 'tracker', '--tls', self.bundle('tracker', 'registry'))
        tracker = self.here(tracker_program.listening('tracker'))
        server = self.start('tuner-server', '--tracker', tracker, '--listen', '127.0.0.1:0', '--db', 'tuning.db', '--tls', self.bundle('server', 'lab'))
        address = server.listening('server')
        self.start_worker(tracker, 'rack1')
        self.path('model.onnx', conv_model())
        tuned = self.start('whet', 'tune', 'model.onnx', '--key', 'local', '--server', address, '--trials', '3', '--tls', self.bundle('admin', 'root'))
        self.assertEqual(tuned.wait(120), 0, tuned.errors() + server.errors())
        self.assertEqual(server.stop(), 0, server.errors())
        self.assertEqual(tracker_program.stop(), 0, tracker_program.errors())


if __name__ == '__main__':
    unittest.main(verbosity=2)
