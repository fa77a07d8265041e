#!/usr/bin/env python3
"""Servers that end under a running `whet tune`, and a second worker on one machine: the command goes on, or says how to."""

import json
import os
import unittest

from cli_case import CliCase, conv_model

TRIALS = 24


class RestartTest(CliCase):

    def start_server(self, tracker=':0', listen='127.0.0.1:0'):
        server = self.start('tuner-server', '--tracker', tracker, '--listen', listen, '--db', 'tuning.db')
        return server, server.listening('tracker'), server.listening('server')

    def start_worker(self, tracker, state):
        worker = self.start('rpc-worker', '--tracker', tracker, '--state-dir', state, '--allow-weak-sandbox')
        self.wait_until(lambda: self.run_whet('devices', '--tracker', tracker, '--key', 'local').returncode == 0)
        return worker

    def trials(self):
        r = self.run_whet('log', 'stats', '--db', 'tuning.db', '--json', '-')
        return json.loads(r.stdout)['trials'] if r.returncode == 0 else 0

    def start_tuning(self, address, *budget):
        client = self.start('whet', 'tune', self.path('net.onnx', conv_model()), '--server', address, '--key', 'local', *budget)
        self.wait_until(lambda: self.trials() >= 3, 60)
        return client

    def test_a_killed_server_goes_on_with_its_job_and_the_command_sees_it_through(self):
        server, tracker, address = self.start_server()
        worker = self.start_worker(tracker, 'worker-state')
        client = self.start_tuning(address, '--trials', str(TRIALS), '--json', '-')
        server.process.kill()
        server.process.wait()
        self.assertLess(self.trials(), TRIALS)
        self.start_server(tracker[tracker.rindex(':'):], address)
        self.assertEqual(client.wait(120), 0, client.errors())
        self.assertIn('the server at %s is away' % address, client.errors())
        tuned = json.loads(client.output)
        self.assertEqual((tuned['trials'], tuned['trials_in_log']), (TRIALS, TRIALS))
        self.assertEqual(tuned['verified'] + sum(tuned['failed'].values()), TRIALS)
        jobs = json.loads(self.run_whet('jobs', '--server', address, '--json', '-').stdout)['jobs']
        self.assertEqual([(job['job'], job['state']) for job in jobs], [(tuned['job'], 'done')])
        self.assertEqual(worker.stop(), 0, worker.errors())

    def test_a_server_that_is_stopped_says_how_to_go_on(self):
        server, tracker, address = self.start_server()
        self.start_worker(tracker, 'worker-state')
        client = self.start_tuning(address, '--time', '120s')
        self.assertEqual(server.stop(), 0, server.errors())
        self.assertEqual(client.wait(), 3, client.errors())
        self.assertIn('run the same command again', client.errors())

    def test_tuning_beside_a_standing_worker_of_the_same_state_folder(self):
        tracker = self.start('rpc-tracker', '--listen', '127.0.0.1:0', '--state-dir', 'tracker-state')
        worker = self.start_worker(tracker.listening('tracker'), 'shared')
        r = self.run_whet('tune', self.path('net.onnx', conv_model()), '--db', 'tuning.db', '--trials', '3', '--state-dir', 'shared', '--json', '-')
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertGreaterEqual(json.loads(r.stdout)['trials'], 3)
        folders = [name for name in os.listdir(self.path('shared')) if name.startswith('worker')]
        self.assertEqual(sorted(folders), ['worker', 'worker-1'])
        for program in [worker, tracker]:
            self.assertEqual(program.stop(), 0, program.errors())


if __name__ == '__main__':
    unittest.main(verbosity=2)
