#!/usr/bin/env python3
"""README's *Fleet*: its commands are run as they are printed there, on four hosts that are network namespaces."""

import json
import os
import re
import shlex
import subprocess
import sys
import unittest

from cli_case import BIN, CliCase, conv_model, read

README = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'README.md')
SERVERS = {'rpc-tracker': 'tracker', 'tuner-server': 'server', 'rpc-worker': None}
INSIDE = 'FLEET_TEST_INSIDE'


def enter_namespaces():
    """Starts this program again where it may make networks and sees nobody else's; why not, where that cannot be done."""
    unshare = ['unshare', '--mount', '--net'] + ([] if os.geteuid() == 0 else ['--map-root-user'])
    # Where `ip netns` keeps its names, and one try of what the commands need.
    prepare = 'mount -t tmpfs none /run && ip link set lo up'
    tried = subprocess.run([*unshare, 'sh', '-c', prepare + ' && ip link add try0 type bridge && ip netns add try'], capture_output=True, text=True)
    if tried.returncode != 0:
        return tried.stderr.strip() or 'unshare failed'
    os.environ[INSIDE] = '1'
    os.execvp('unshare', [*unshare, 'sh', '-c', prepare + ' && exec "$@"', 'sh', sys.executable, '-B', *sys.argv])


class ReadmeFleetTest(CliCase):

    def setUp(self):
        super().setUp()
        self.path('model.onnx', conv_model())
        self.env['PATH'] = os.path.abspath(BIN) + ':' + self.env['PATH']
        self.started = {}

    def shell(self, command):
        r = subprocess.run(['bash', '-euc', command], cwd=self.dir, env=self.env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
        self.assertEqual(r.returncode, 0, '%s\n%s%s' % (command, r.stdout, r.stderr))
        return r.stdout

    def run_line(self, line):
        """A command in the foreground, or a program that keeps running; what it prints."""
        words = shlex.split(line)
        program = words[2] if words[0] == 'nsenter' else words[0]
        if program in SERVERS:
            # By its full path: what is looked for is `nsenter`.
            self.started[program] = self.start('/usr/bin/env', *words)
            if SERVERS[program]:
                self.started[program].listening(SERVERS[program])
            return ''
        if program == 'whet' and 'tune' in words:
            words[words.index('--trials') + 1] = '6'
        if program == 'whet' and 'devices' in words:
            self.wait_until(lambda: 'idle' in self.shell(line))
        return self.shell(line if program != 'whet' else shlex.join(words))

    def test_the_commands_of_the_readme_work_as_printed(self):
        """Only 200 trials are replaced, by 6."""
        section = re.search(r'^## Fleet\n(.*?)^## ', read(README).decode(), re.M | re.S).group(1)
        blocks = re.findall(r'^```\n(.*?)^```', section, re.M | re.S)
        self.assertEqual(len(blocks), 4, 'certificates, hosts, programs, a denial')
        certificates, hosts, programs, denial = blocks
        for line in certificates.splitlines():
            self.run_line(line)
        self.shell(hosts)
        said = [self.run_line(line) for line in programs.splitlines()]
        self.assertEqual(sorted(self.started), sorted(SERVERS))
        self.assertIn('board1.', said[-2])
        self.assertGreaterEqual(json.loads(self.shell('whet log stats --db tuning.db --json -'))['trials'], 6)
        self.assertIn('event=worker_stream by=worker/board1', self.started['tuner-server'].errors())

        # The certificate is what lets in, not the network: the same commands without one reach nothing.
        ask = programs.splitlines()[-2].split(' --tls ')[0]
        r = subprocess.run(shlex.split(ask), cwd=self.dir, env=self.env, capture_output=True, text=True, timeout=60)
        self.assertEqual(r.returncode, 2, r.stdout)
        self.assertIn('--tls DIR', r.stderr)

        for line in denial.splitlines():
            self.run_line(line)
        self.wait_until(lambda: 'worker/board1 is denied' in self.started['rpc-tracker'].errors())
        self.wait_until(lambda: 'event=deny_list_read entries=1' in self.started['tuner-server'].errors())
        self.wait_until(lambda: 'board1.' not in self.shell(programs.splitlines()[-2]), 60)
        for program in ['rpc-worker', 'tuner-server', 'rpc-tracker']:
            self.assertEqual(self.started[program].stop(), 0, self.started[program].errors())


if __name__ == '__main__':
    why_not = None if INSIDE in os.environ else enter_namespaces()
    if why_not is not None:
        ReadmeFleetTest = unittest.skip('no network namespaces here: ' + why_not)(ReadmeFleetTest)
    unittest.main(verbosity=2)
