#!/usr/bin/env python3
"""`whet tune` on this machine: server, tracker and worker as its children. Nothing that was measured is lost or repeated, however it ends."""

import contextlib
import json
import os
import signal
import sqlite3
import unittest

from cli_case import WIDE, CliCase, conv_model, read


class TuneTest(CliCase):

    def tune(self, model, *args):
        r = self.run_whet('tune', model, '--db', 'tuning.db', '--json', '-', *args)
        self.assertEqual(r.returncode, 0, r.stderr)
        return json.loads(r.stdout)

    def rows(self):
        """Trials of the log as it exports them."""
        lines = self.run_whet('log', 'export', '-', '--db', 'tuning.db').stdout.splitlines()
        return [row for row in map(json.loads, lines) if row['kind'] == 'trial']

    def trials(self):
        r = self.run_whet('log', 'stats', '--db', 'tuning.db', '--json', '-')
        return json.loads(r.stdout)['trials'] if r.returncode == 0 else 0

    def start_tuning(self):
        started = self.start('whet', 'tune', self.path('net.onnx', conv_model()), '--db', 'tuning.db', '--time', '120s')
        self.wait_until(lambda: self.trials() > 0, 60)
        return started

    def test_workloads_are_tuned_as_they_are(self):
        text = ''.join(f'whet-workload 1\ninput f32[{n},16]\nop Relu.1(0)\noutput 1 f32[{n},16]\n' for n in (8, 24, 8))
        report = self.tune(self.path('some.txt', text.encode()), '--trials', '4')
        self.assertEqual(len(report['tasks']), 2)
        self.assertTrue(all(t['default_ms'] > 0 for t in report['tasks']), report)
        bad = self.run_whet('tune', self.path('bad.txt', (text + 'whet-workload 1\nop\n').encode()), '--db', 'tuning.db')
        self.assertEqual(bad.returncode, 2)
        self.assertIn("workload 4 of '", bad.stderr)
        alternatives = self.run_whet('tune', 'some.txt', '--db', 'tuning.db', '--alternatives')
        self.assertEqual(alternatives.returncode, 2)
        self.assertIn('is a list of workloads', alternatives.stderr)

    def test_a_log_is_topped_up_repeats_no_trial_and_gives_the_same_bytes(self):
        net = self.path('net.onnx', conv_model())
        first = self.tune(net, '--trials', '9')
        self.assertGreaterEqual(first['trials'], 9)
        self.assertEqual(first['trials'], first['trials_in_log'])
        self.assertEqual((first['failed'], first['interrupted']), ({}, False))
        self.assertEqual(first['verified'], first['trials'])
        self.assertAlmostEqual(first['verified_per_second'], first['verified'] / first['seconds'])
        for task in first['tasks']:
            self.assertTrue(task['name'] and task['weight'] == 1 and 0 < task['best_ms'] <= task['default_ms'] and task['trials_to_best'] >= 0, task)
        self.assertEqual(self.tune(net, '--trials', '9')['trials'], 0)
        before = self.trials()
        self.assertEqual(self.tune(net, '--trials', str(first['trials']))['trials'], 0)
        self.assertEqual(self.trials(), before)  # a full log measures nothing at all

        more = self.tune(net, '--trials', str(first['trials'] + 4))
        self.assertEqual((more['trials'], more['trials_in_log']), (4, first['trials'] + 4))
        searched = [(row['workload'], row['trace']) for row in self.rows() if not row['is_default'] and row['rung'] < 4]
        self.assertGreater(len(searched), 4)
        self.assertEqual(len(searched), len(set(searched)))

        for out in ['one.so', 'two.so']:
            self.assertEqual(self.run_whet('compile', net, '--db', 'tuning.db', '--name', 'net', '-o', out).returncode, 0)
        self.assertEqual(read(self.path('one.so')), read(self.path('two.so')))
        self.assertEqual(self.run_whet('verify', 'one.so', net, '--layers').returncode, 0)
        best = json.loads(self.run_whet('log', 'best', '--db', 'tuning.db', '--json', '-').stdout)
        self.assertEqual(len(best['tasks']), len(more['tasks']))
        for task in best['tasks']:
            self.assertTrue(task['best_ms'] is None and task['why'] or task['best_ms'] < task['default_ms'], task)

    def test_alternatives_are_measured_and_chosen_from(self):
        net = self.path('net.onnx', conv_model())
        plain = self.tune(net, '--trials', '1')
        plans = json.loads(self.run_whet('log', 'plans', '--db', 'tuning.db', '--json', '-').stdout)['regions']
        self.assertEqual([[a['name'] for a in r['alternatives']] for r in plans], [['selected']])
        more = self.tune(net, '--trials', '40', '--alternatives')  # more than there are tasks
        self.assertGreater(len(more['tasks']), len(plain['tasks']))
        plans = json.loads(self.run_whet('log', 'plans', '--db', 'tuning.db', '--json', '-').stdout)['regions']
        network = [r for r in plans if r['summary'] == 'network']
        self.assertEqual(len(network), 1)
        self.assertIn('row-major', [a['name'] for a in network[0]['alternatives']])
        self.assertIn('split', [a['name'] for r in plans if r['summary'] != 'network' for a in r['alternatives']])
        r = self.run_whet('compile', net, '--db', 'tuning.db', '-o', 'net.so', '--json', '-')
        plan = json.loads(r.stdout)['plan']
        # Every task has been timed, so the log has an answer: another plan, how far off the nearest one is, or that the machine was busy.
        self.assertTrue(plan['source'] == 'measured' and plan['ratio'] < 1
                        or any(words in plan['reason'] for words in ['nearest alternative', 'undisturbed time']), plan)
        self.expect(0, [], 'verify', 'net.so', net, '--layers')
        for layouts in ['selected', 'row-major', 'channels-last']:
            r = self.expect(0, [], 'compile', net, '--db', 'tuning.db', '--layouts', layouts, '-o', 'net.so')
            self.assertIn('plan: layouts ' + layouts, r.stdout)
            self.expect(0, [], 'verify', 'net.so', net, '--layers')

    def test_damage_is_named_and_what_is_whole_goes_on(self):
        wide = self.path('wide.onnx', WIDE)
        self.tune(wide, '--trials', '4')
        earlier, trials = read(self.path('tuning.db')), self.trials()
        self.tune(wide, '--trials', '6')
        with open(self.path('tuning.db'), 'wb') as f:  # a copy from before comes back
            f.write(earlier)
        lost = ['acknowledged rows are missing', 'it holds %d trial rows' % trials]
        self.expect(2, [*lost, 'whet log salvage --db'], 'tune', wide, '--db', 'tuning.db', '--trials', '4')
        self.expect(0, lost, 'log', 'stats', '--db', 'tuning.db')
        for salvaged in [True, False]:
            r = self.run_whet('log', 'salvage', '--db', 'tuning.db', '--json', '-')
            self.assertEqual(json.loads(r.stdout)['salvaged'], salvaged, r.stderr)
        self.assertEqual(self.tune(wide, '--trials', '4')['trials'], 0)

        with contextlib.closing(sqlite3.connect(self.path('tuning.db'))) as db:
            db.execute('UPDATE trials SET median_ns = median_ns + 1 WHERE seq = 2')
            db.commit()
        self.assertIn('trials row 2', self.run_whet('log', 'check', '--db', 'tuning.db').stdout)
        self.assertEqual(self.run_whet('log', 'check', '--db', 'tuning.db').returncode, 1)
        for action in ['best', 'stats']:
            self.expect(0, ['damaged rows, left out: 1'], 'log', action, '--db', 'tuning.db')
        self.expect(0, ['trials row 2'], 'compile', wide, '--db', 'tuning.db', '-o', 'wide.so')
        r = self.expect(0, ['left out: trials row 2'], 'log', 'export', 'part.jsonl', '--db', 'tuning.db', '--json', '-')
        self.assertEqual(json.loads(r.stdout)['damaged'], 1)
        r = self.run_whet('log', 'import', 'part.jsonl', '--db', 'new.db', '--json', '-')
        self.assertEqual(json.loads(r.stdout)['added'], json.loads(r.stdout)['rows'] - 2, r.stderr)
        self.assertEqual(json.loads(self.run_whet('log', 'stats', '--db', 'new.db', '--json', '-').stdout)['imported'], trials - 1)

    def test_interrupted_tuning_keeps_its_rows_and_its_log_has_one_writer(self):
        started = self.start_tuning()
        children = self.children_of(started.process.pid)
        self.assertEqual(len(children), 2)
        self.expect(2, ['tuning.db', 'is being written by process %d' % children[0], '--server'], 'tune', 'net.onnx', '--db', 'tuning.db', '--trials', '1')
        self.assertEqual(started.stop(signal.SIGINT), 130, started.errors())
        self.assertGreater(self.trials(), 0)
        for pid in children:
            self.assertFalse(os.path.exists('/proc/%d' % pid))

    def test_a_killed_command_takes_its_servers_along_and_its_log_goes_on_at_once(self):
        started = self.start_tuning()
        children = self.children_of(started.process.pid)
        started.process.kill()
        kept = self.trials()
        self.assertGreater(kept, 0)
        self.assertGreaterEqual(self.tune('net.onnx', '--trials', '2')['trials_in_log'], 1)
        self.assertGreaterEqual(self.trials(), kept)
        self.wait_until(lambda: not any(self.runs(pid) for pid in children), 30)


if __name__ == '__main__':
    unittest.main(verbosity=2)
