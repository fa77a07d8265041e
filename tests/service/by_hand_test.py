#!/usr/bin/env python3
"""The processes of a fleet, started by hand as README shows: its commands are run as they are printed there."""

import json
import os
import re
import shlex
import signal
import unittest

from cli_case import CliCase, conv_model, npy, read

README = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'README.md')


class ByHandTest(CliCase):

    def setUp(self):
        super().setUp()
        self.path('model.onnx', conv_model())
        npy(self.path('picture.npy'), [1, 8, 24, 24], [(i * 7919 % 201 - 100) / 100 for i in range(8 * 24 * 24)])

    def json_of(self, *args):
        r = self.run_whet(*args, '--json', '-')
        self.assertEqual(r.returncode, 0, r.stderr)
        return json.loads(r.stdout)

    def await_device(self, tracker):
        self.wait_until(lambda: self.json_of('devices', '--tracker', tracker)['known_keys'] == ['local'])

    def test_the_commands_of_the_readme_work_as_printed(self):
        """Only the ports are replaced, by free ones, and 200 trials by 12."""
        block = re.search(r'^## By hand.*?^```\n(.*?)^```', read(README).decode(), re.M | re.S).group(1)
        addresses, servers, tuned = {}, [], ''
        for line in block.splitlines():
            program, *args = shlex.split(line)
            listens = None
            for i, arg in enumerate(args):
                if arg in addresses:
                    args[i] = addresses[arg]
                elif args[i - 1] == '--listen':
                    listens, args[i] = arg, '127.0.0.1:0'
                elif args[i - 1] == '--trials':
                    args[i] = '12'
            if program == 'whet':
                r = self.run_whet(*args)
                self.assertEqual(r.returncode, 0, '%s\n%s' % (line, r.stderr))
                tuned += r.stdout if args[0] == 'compile' else ''
                continue
            servers.append(self.start(program, *args))
            if listens:
                addresses[listens] = servers[-1].listening('tracker' if program == 'rpc-tracker' else 'server')
            if program == 'rpc-worker':
                self.await_device(addresses['127.0.0.1:9190'])
        self.assertEqual(len(servers), 3)
        second = self.start('rpc-tracker', '--listen', ':0')
        self.assertEqual(second.wait(), 2)
        self.assertRegex(second.errors(), r'held by a tracker, pid %d.*--state-dir' % servers[0].process.pid)
        self.assertRegex(tuned, r'[0-3] of 3 tasks tuned')
        self.assertEqual(len(read(self.path('out/mean.npy'))), 128 + 4 * 16)
        self.assertEqual(self.run_whet('verify', 'face.so', 'model.onnx', '--input', 'picture.npy').returncode, 0)
        for server in servers:
            self.assertEqual(server.stop(), 0, server.errors())

    def test_a_server_with_the_tracker_inside(self):
        server = self.start('tuner-server', '--tracker', ':0', '--listen', ':0', '--db', 'tuning.db')
        tracker, address = server.listening('tracker'), server.listening('server')
        worker = self.start('rpc-worker', '--key', 'local', '--tracker', tracker)
        self.await_device(tracker)

        for command in [('jobs', '--server', tracker), ('compile', 'model.onnx', '-o', 'm.so', '--server', tracker), ('devices', '--tracker', address)]:
            self.expect(2, ['%s is not the address of a %s' % (command[-1], 'tracker' if command[0] == 'devices' else 'tuner server')], *command)

        # What is taken or unknown is answered with what there is.
        second = self.start('tuner-server', '--tracker', tracker, '--listen', ':0', '--db', 'tuning.db')
        for command in [('devices', '--tracker', tracker), ('devices', '--server', address), ('tune', 'model.onnx', '--server', address)]:
            self.expect(2, ["'nobody'", 'local'], *command, '--key', 'nobody')
        for program, flag in [('rpc-tracker', '--listen'), ('tuner-server', '--listen')]:
            taken = self.start(program, flag, address, *(['--db', 'other.db'] if program == 'tuner-server' else ['--state-dir', 'other']))
            self.assertEqual(taken.wait(), 2)
            self.assertIn('port %s of 127.0.0.1 is in use' % address.split(':')[1], taken.errors())
        self.assertEqual(second.wait(), 2)
        self.assertIn('tuning.db\' is being written by process %d' % server.process.pid, second.errors())

        # `whet bench` has the device: the worker, assigned, waits for it.
        self.assertEqual(self.run_whet('compile', 'model.onnx', '-o', 'model.so').returncode, 0)
        bench = self.start('whet', 'bench', 'model.so', '--runs', '100000000')
        lock = os.path.join(self.dir, 'state', 'whet', 'device.lock')
        self.wait_until(lambda: os.path.exists(lock) and b'whet pid' in read(lock))
        tune = self.start('whet', 'tune', 'model.onnx', '--key', 'local', '--server', address, '--trials', '6', '--json', 'tune.json')
        cache = os.path.join(self.dir, 'state', 'whet')
        self.wait_until(lambda: any(len(re.sub('[^0-9a-f]', '', f)) == 64 for _, _, files in os.walk(cache) for f in files))
        self.assertEqual(self.json_of('log', 'stats', '--db', 'tuning.db')['trials'], 0)
        self.assertEqual(bench.stop(signal.SIGINT), 130)
        self.assertEqual(tune.wait(), 0, tune.errors())
        report = json.loads(read(self.path('tune.json')))
        self.assertGreaterEqual(report['trials'], 6)
        self.assertEqual(report['failed'], {})

        jobs = self.json_of('jobs', '--server', address)['jobs']
        self.assertEqual([(j['state'], j['trials']) for j in jobs], [('done', report['trials'])])
        self.assertEqual(self.json_of('devices', '--server', address)['devices'][0]['state'], 'idle')
        # The server's records and those of its file are the same, and give the same bytes.
        for out, source in [('a.so', ['--server', address]), ('b.so', ['--db', 'tuning.db'])]:
            self.json_of('compile', 'model.onnx', '--name', 'm', '-o', out, *source)
        self.assertEqual(read(self.path('a.so')), read(self.path('b.so')))
        self.assertEqual(worker.stop(), 0, worker.errors())
        self.assertEqual(server.stop(), 0, server.errors())


if __name__ == '__main__':
    unittest.main(verbosity=2)
