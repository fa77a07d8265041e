#!/usr/bin/env python3
"""The systemd units of deploy/systemd: they are well-formed and closed, their programs know their flags, and what they
promise of restarts holds, tried with a supervisor that does what they say."""

import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import unittest

from cli_case import BIN, CliCase, read

UNITS = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'deploy', 'systemd')
# Exposure as systemd counts it, 0 (closed) to 10: what was reached, rounded up.
PROGRAMS = {'tuner-server': 5.0, 'rpc-tracker': 2.0, 'rpc-worker': 6.0}


def settings(program):
    """The settings of a unit's [Service], the last one of each name."""
    with open(os.path.join(UNITS, 'whet-%s.service' % program), encoding='utf-8') as f:
        service = f.read().split('[Service]')[1].split('[Install]')[0]
    return dict(re.findall(r'^(\w+)=(.*)$', service, re.M))


class UnitFilesTest(CliCase):

    def copy(self, program):
        """The unit with the program of this build: systemd looks whether there is one."""
        path = self.path('whet-%s.service' % program)
        with open(os.path.join(UNITS, os.path.basename(path)), encoding='utf-8') as f:
            text = f.read()
        self.assertIn('ExecStart=/usr/bin/%s ' % program, text)
        with open(path, 'w', encoding='utf-8') as f:
            f.write(text.replace('/usr/bin/', os.path.abspath(BIN) + '/'))
        return path

    @unittest.skipUnless(shutil.which('systemd-analyze'), 'there is no systemd-analyze')
    def test_systemd_understands_every_line(self):
        for program in PROGRAMS:
            unit = self.copy(program)
            r = subprocess.run(['systemd-analyze', 'verify', '--man=no', '--recursive-errors=no', unit], capture_output=True, text=True, timeout=60)
            said = [line for line in r.stderr.splitlines() if os.path.basename(unit) in line or 'Unknown' in line]
            self.assertEqual(said, [], r.stderr)
            self.assertEqual(r.returncode, 0, r.stderr)
        # The check sees what is wrong.
        with open(unit, 'a', encoding='utf-8') as f:
            f.write('\n[Service]\nRestart=sometimes\n')
        r = subprocess.run(['systemd-analyze', 'verify', '--man=no', '--recursive-errors=no', unit], capture_output=True, text=True, timeout=60)
        self.assertIn('sometimes', r.stderr)

    @unittest.skipUnless(shutil.which('systemd-analyze'), 'there is no systemd-analyze')
    def test_the_units_stay_as_closed_as_they_are(self):
        for program, most in PROGRAMS.items():
            r = subprocess.run(['systemd-analyze', 'security', '--offline=true', '--no-pager', self.copy(program)], capture_output=True, text=True,
                               timeout=60)
            exposure = re.search(r'Overall exposure level for \S+: ([0-9.]+)', r.stdout)
            self.assertTrue(exposure, r.stdout + r.stderr)
            self.assertLessEqual(float(exposure.group(1)), most, r.stdout)

    def test_the_programs_know_their_configuration(self):
        for program in PROGRAMS:
            self.assertRegex(settings(program)['ExecStart'], r'^/usr/bin/%s --config /etc/whet/%s\.toml$' % (program, program))
            r = self.run_whet('--config', os.path.join(UNITS, program + '.toml'), '--dump-config', program=os.path.join(BIN, program))
            self.assertEqual(r.returncode, 0, r.stderr)
            self.assertIn('tls = "/etc/whet/', r.stdout)


class Supervisor:
    """Does what a unit says of restarts, without its waits: starts the program, and again when it failed."""

    def __init__(self, case, program, *args):
        self.case, self.program, self.args = case, program, args
        self.rules = settings(program)
        case.assertEqual(self.rules['Restart'], 'on-failure')
        self.starts, self.codes = 0, []
        self.log = open(case.path(program + '.log'), 'ab')
        self.started = threading.Condition()
        self.process = None
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while True:
            process = subprocess.Popen([os.path.join(BIN, self.program), *self.args], cwd=self.case.dir, env=self.case.env, stdin=subprocess.DEVNULL,
                                       stdout=subprocess.DEVNULL, stderr=self.log)
            with self.started:
                self.process = process
                self.starts += 1
                self.started.notify_all()
            code = process.wait()
            self.codes.append(code)
            # on-failure: an exit code that is not 0, or a signal other than those of a wanted end.
            if code == 0 or str(code) in self.rules['RestartPreventExitStatus'].split() or -code in (signal.SIGTERM, signal.SIGINT):
                return

    def kill(self, number):
        with self.started:
            before = self.starts
            self.process.send_signal(number)
            return self.started.wait_for(lambda: self.starts > before, 30)

    def end(self):
        with self.started:
            self.process.send_signal(signal.SIGTERM)
        self.thread.join(30)
        self.log.close()
        self.case.assertFalse(self.thread.is_alive())


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


class RestartTest(CliCase):

    def keys(self, tracker):
        r = self.run_whet('devices', '--tracker', tracker)
        return r.returncode == 0 and 'local' in r.stdout

    def test_a_server_and_a_worker_that_abort_are_back_with_what_they_had(self):
        tracker, address = ('127.0.0.1:%d' % free_port() for _ in range(2))
        server = Supervisor(self, 'tuner-server', '--tracker', tracker[tracker.rindex(':'):], '--listen', address, '--db', 'tuning.db')
        self.addCleanup(server.end)
        worker = Supervisor(self, 'rpc-worker', '--tracker', tracker, '--key', 'local', '--state-dir', 'state')
        self.addCleanup(worker.end)
        self.wait_until(lambda: self.keys(tracker), 40)
        for number in [signal.SIGABRT, signal.SIGSEGV, signal.SIGKILL]:
            self.assertTrue(server.kill(number))
            self.wait_until(lambda: self.run_whet('jobs', '--server', address).returncode == 0, 40)
            self.wait_until(lambda: self.keys(tracker), 40)
        self.assertEqual(server.codes, [-signal.SIGABRT, -signal.SIGSEGV, -signal.SIGKILL])
        self.assertEqual(self.run_whet('log', 'check', '--db', 'tuning.db').returncode, 0)
        self.assertTrue(worker.kill(signal.SIGABRT))
        self.wait_until(lambda: self.keys(tracker), 40)

    def test_what_a_restart_does_not_mend_is_not_restarted(self):
        refused = Supervisor(self, 'rpc-tracker', '--listen', '0.0.0.0:0')
        refused.thread.join(30)
        self.assertEqual(refused.codes, [2])
        refused.log.close()
        stopped = Supervisor(self, 'rpc-tracker', '--listen', '127.0.0.1:0', '--state-dir', 'state')
        with stopped.started:
            stopped.started.wait_for(lambda: stopped.process is not None, 30)
        self.wait_until(lambda: b'event=tracker_started' in read(self.path('rpc-tracker.log')))
        stopped.end()
        self.assertEqual(stopped.codes, [0])


if __name__ == '__main__':
    unittest.main(verbosity=2)
