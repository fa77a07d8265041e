#!/usr/bin/env python3
"""The `whet` command from outside: bad input is answered with its name, its bound and an exit code, for every verb."""

import contextlib
import json
import os
import re
import resource
import shutil
import signal
import socket
import sqlite3
import stat
import struct
import subprocess
import time
import unittest

from cli_case import (ARTIFACTS, BIN, RELU, SYMBOLIC, UNSUPPORTED, WHET, CliCase, conv_chain, field, initializer, ints, model, node, npy, read,
                      value_info)


class CliTest(CliCase):

    # ---- names ----

    def test_unknown_verbs_and_flags_list_what_exists(self):
        self.expect(2, ["unknown verb 'bnech'", "did you mean 'bench'?", 'compile, tune, run, bench'], 'bnech')
        self.expect(2, ["unknown flag '--thread'", "did you mean '--threads'?", '--profile'], 'bench', 'x.so', '--thread', '2')
        self.expect(2, 'Usage', )
        self.expect(2, 'ARTIFACT', 'bench')
        self.expect(2, "THREADS", 'bench', 'x.so', env={'WHET_THREADS': 'many'})
        self.expect(2, ["unexpected argument 'more'", 'takes ARTIFACT'], 'bench', 'x.so', 'more')
        self.expect(2, ["unknown flag '-q'", '--threads'], 'bench', 'x.so', '-q')
        self.expect(2, ['--threads', '1', '1024'], 'bench', 'x.so', '--threads', '0')
        self.expect(2, ["unknown flag '--bnd'", "did you mean '--bind'?"], 'compile', 'm.onnx', '-o', 'm.so', '--bnd', 'batch=1')
        for program, wrong, right in [('rpc-tracker', '--lisen', '--listen'), ('rpc-worker', '--keys', '--key'), ('tuner-server', '--builder', '--builders')]:
            self.expect(2, ["unknown flag '%s'" % wrong, "did you mean '%s'?" % right, '--dump-config'], wrong, 'x', program=os.path.join(BIN, program))
            self.expect(2, ["unexpected argument 'x'", program + ' --help'], 'x', program=os.path.join(BIN, program))

    def test_a_worker_with_a_weak_sandbox_serves_no_strangers(self):
        worker = os.path.join(BIN, 'rpc-worker')
        state = ['--state-dir', self.path('state'), '--tracker']
        self.expect(2, ["--allow-weak-sandbox is for a tracker on this machine, 'lab.example:9190'", 'whet doctor'],
                    '--allow-weak-sandbox', *state, 'lab.example:9190', program=worker)
        self.expect(2, ['sandbox is too weak', 'seccomp', 'landlock', '--allow-weak-sandbox'],
                    '--sandbox-without', 'seccomp,landlock,mnt-ns', *state, '127.0.0.1:1', program=worker)

    def test_help_of_every_verb_has_examples(self):
        top = self.run_whet('--help')
        self.assertEqual(top.returncode, 0)
        verbs = re.findall(r'^  ([a-z]+)  ', top.stdout, re.M)
        self.assertGreaterEqual(len(verbs), 11, top.stdout)
        for verb in verbs:
            r = self.run_whet(verb, '--help')
            self.assertEqual(r.returncode, 0, verb)
            self.assertRegex(r.stdout, r'Examples:\n  whet ' + verb, verb)
            self.assertEqual(self.run_whet('help', verb).stdout, r.stdout)
        self.assertEqual(self.run_whet('help').stdout, top.stdout)
        for program in ['rpc-tracker', 'rpc-worker', 'tuner-server']:
            r = self.run_whet('--help', program=os.path.join(BIN, program))
            self.assertEqual(r.returncode, 0)
            self.assertRegex(r.stdout, r'Examples?:\n  ' + program)
            self.assertIn('Exit codes:', r.stdout)

    def test_sources_of_flags_have_an_order(self):
        config = self.path('c.toml', b'threads = 2\n[bench]\nruns = 30\n[tune]\ntrials = 5\n')
        art = os.path.join(ARTIFACTS, 'prepack.so')

        def threads(*args, env=None):
            r = self.run_whet('bench', art, '--runs', '3', '--json', '-', *args, env=env)
            self.assertEqual(r.returncode, 0, r.stderr)
            return json.loads(r.stdout)['threads']

        self.assertEqual(threads(), 1)
        self.assertEqual(threads('--config', config), 2)
        self.assertEqual(threads('--config', config, env={'WHET_THREADS': '3'}), 3)
        self.assertEqual(threads('--config', config, '--threads', '4', env={'WHET_THREADS': '3'}), 4)
        dump = self.run_whet('bench', art, '--config', config, '--dump-config')
        self.assertEqual(dump.returncode, 0, dump.stderr)
        self.assertIn('\nruns = 30\n', dump.stdout)
        self.assertIn('\ntime = "1s"\n', dump.stdout)
        self.assertEqual(self.run_whet('bench', '--dump-config', '--config', config).stdout, dump.stdout)  # needs no artifact
        again = self.run_whet('bench', '--dump-config', '--config', self.path('dump.toml', dump.stdout.encode()))
        self.assertEqual(again.stdout, dump.stdout, again.stderr)
        self.expect(2, ['thraeds', 'threads'], 'bench', art, '--config', self.path('bad.toml', b'thraeds = 2\n'))
        self.expect(2, 'line 1', 'bench', art, '--config', self.path('broken.toml', b'threads = = 2\n'))

    # ---- artifacts ----

    def test_run_checks_inputs_and_writes_outputs(self):
        art = os.path.join(ARTIFACTS, 'phases.so')
        npy(self.path('x.npy'), [100, 10], [float(i) for i in range(1000)])
        npy(self.path('flat.npy'), [1000], [0.0] * 1000)
        npy(self.path('ints.npy'), [100, 10], [0] * 1000, 'i', '<i4')
        r = self.run_whet('run', art, '--input', 'x=x.npy', '--output-dir', 'out')
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertEqual(sorted(os.listdir(self.path('out'))), ['scores_y_0.npy', 'sum.npy'])
        self.expect(2, ["'x' f32 100x10 is missing"], 'run', art)
        self.expect(2, ['has shape 1000', 'needs 100x10'], 'run', art, '--input', 'flat.npy')
        self.expect(2, ['holds i32', 'needs f32'], 'run', art, '--input', 'ints.npy')
        self.expect(2, ["no input 'z'"], 'run', art, '--input', 'z=x.npy')
        self.expect(2, ['cut off'], 'run', art, '--input', self.path('cut.npy', read(self.path('x.npy'))[:900]))
        self.expect(2, ['cannot make the folder'], 'run', art, '--input', 'x.npy', '--output-dir', 'x.npy/out')
        before = read(self.path('x.npy'))
        for spec in ['sum.npy', 'x=sum.npy', 'x=./sum.npy']:
            self.path('sum.npy', before)
            self.expect(2, ['--output-dir', 'sum.npy', 'is read by this command'], 'run', art, '--input', spec)
        self.assertEqual(read(self.path('sum.npy')), before)
        os.remove(self.path('sum.npy'))
        own = self.path('own.so', read(art))  # mapped while it runs
        os.symlink('own.so', self.path('sum.npy'))
        self.expect(2, ['--output-dir', 'sum.npy', 'is read by this command'], 'run', own, '--input', 'x.npy')
        os.remove(self.path('sum.npy'))
        os.mkfifo(self.path('sum.npy'))
        self.expect(2, ['sum.npy', 'not a regular file'], 'run', own, '--input', 'x.npy')
        os.remove(self.path('sum.npy'))
        for path, why in [('x.npy', 'is read by'), ('own.so', 'is read by'), ('sum.npy', 'are one file'), ('new/sum.npy', 'are one file')]:
            os.makedirs(self.path('new'), exist_ok=True)
            self.expect(2, ['--json', path, why], 'run', own, '--input', 'x=x.npy', '--json', path, '--output-dir', os.path.dirname(path) or '.')
        self.expect(2, ['--json', 'own.so', 'is read by'], 'bench', own, '--runs', '3', '--json', 'own.so')
        self.assertEqual((read(own), read(self.path('x.npy'))), (read(art), before))

    def test_files_that_are_no_artifacts(self):
        whole = read(os.path.join(ARTIFACTS, 'phases.so'))
        for verb in ['run', 'bench']:
            self.expect(2, ['No such file'], verb, 'absent.so')
            self.expect(2, ['folder'], verb, self.dir)
            self.expect(2, ['empty'], verb, self.path('empty.so', b''))
            self.expect(2, ['not a whet artifact'], verb, self.path('cut.so', whole[:len(whole) // 2]))
            self.expect(2, ['not a whet artifact'], verb, self.path('random.so', bytes(range(256)) * 16))
            self.expect(2, ['interface version is 2'], verb, os.path.join(ARTIFACTS, 'bad_version.so'))
            self.expect(2, ['quantum-tile'], verb, os.path.join(ARTIFACTS, 'bad_feature.so'))

    def test_bench_reports_the_fields_that_scripts_rely_on(self):
        art = os.path.join(ARTIFACTS, 'phases.so')
        r = self.run_whet('bench', art, '--runs', '50', '--profile', '--json', '-')
        self.assertEqual(r.returncode, 0, r.stderr)
        j = json.loads(r.stdout)
        self.assertEqual((j['runs'], j['threads']), (50, 1))
        self.assertTrue(0 < j['min_ms'] <= j['median_ms'] <= j['p90_ms'])
        self.assertEqual([t['name'] for t in j['tasks']], ['double', 'reverse+add', 'sum'])

    def test_bench_waits_for_the_device_and_says_who_has_it(self):
        art = os.path.join(ARTIFACTS, 'phases.so')
        with subprocess.Popen([WHET, 'bench', art, '--runs', '100000000'], env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as holder:
            lock = os.path.join(self.dir, 'state', 'whet', 'device.lock')
            self.wait_until(lambda: os.path.exists(lock) and b'pid' in read(lock))
            r = self.expect(3, ['the device is busy', '--wait'], 'bench', art, '--runs', '3', '--wait', '0')
            self.assertIn(str(holder.pid), r.stderr)
            holder.send_signal(signal.SIGINT)
            out, err = holder.communicate(timeout=20)
            self.assertEqual(holder.returncode, 130, err)
            self.assertIn('median', out)  # what was measured by then

    def test_serving_blocks_answers_each_line(self):
        r = subprocess.run([WHET, 'bench', os.path.join(ARTIFACTS, 'phases.so'), '--serve-blocks'], env=self.env, input='run 3\ntasks 5\nrun 5\n', capture_output=True, text=True, timeout=60)
        self.assertEqual(r.returncode, 0, r.stderr)
        lines = r.stdout.split()
        self.assertEqual(lines[0], 'ready')
        self.assertTrue(all(float(v) >= 0 for v in lines[1:]) and len(lines) == 4, lines)
        r = subprocess.run([WHET, 'bench', os.path.join(ARTIFACTS, 'phases.so'), '--serve-blocks'], env=self.env, input='run zero\n', capture_output=True, text=True, timeout=60)
        self.assertEqual(r.returncode, 2)

    def test_a_model_and_its_artifact_have_as_many_tasks_and_launches(self):
        nodes = [node('Relu', ['x'], ['a'], 'relu1'), node('Relu', ['z'], ['b'], 'relu2'), node('Relu', ['w'], ['c'], 'relu3')]
        shapes = {'x': [1, 8], 'z': [1, 8], 'w': [3, 8], 'a': [1, 8], 'b': [1, 8], 'c': [3, 8]}
        same = self.path('same.onnx', model(nodes, [value_info(n, shapes[n]) for n in 'xzw'], [value_info(n, shapes[n]) for n in 'abc']))
        r = self.run_whet('compile', same, '-o', 'same.so')
        self.assertIn('0 of 2 tasks tuned', r.stdout, r.stderr)
        for file in [same, 'same.so']:
            self.assertIn('2 tasks, 3 kernel launches\n', self.run_whet('inspect', file).stdout)
            j = json.loads(self.run_whet('inspect', file, '--json', '-').stdout)
            self.assertEqual(([(t['name'], t['count']) for t in j['tasks']], j['launches']), ([('relu1', 2), ('relu3', 1)], 3))

    def test_inspect_shows_an_artifact(self):
        j = json.loads(self.run_whet('inspect', os.path.join(ARTIFACTS, 'phases.so'), '--json', '-').stdout)
        self.assertEqual(j['inputs'], [{'name': 'x', 'dtype': 'f32', 'shape': [100, 10]}])
        self.assertEqual(len(j['tasks']), 3)
        for flag in [['--graph'], ['--shape', 'x=1'], ['--bind', 'x=1'], ['--output', 'y'], ['--dump-after', 'mark-views'],
                     ['--layouts', 'row-major'], ['--threads', '1'], ['--db', 'x.db'], ['--server', '127.0.0.1:1']]:
            self.expect(2, [flag[0] + ' is for models', 'phases.so', 'a compiled model'], 'inspect', os.path.join(ARTIFACTS, 'phases.so'), *flag)
        self.expect(2, ['--db is for models', 'made.db', 'a tuning log'], 'inspect', self.made_log(), '--db', 'x.db')
        self.expect(2, ['--target is for models and artifacts', 'made.db'], 'inspect', self.made_log(), '--target', 'host')
        for verb in ['inspect', 'run', 'bench']:
            self.expect(2, ["has no code for 'foo'; it has cpu -arch=test"], verb, os.path.join(ARTIFACTS, 'phases.so'), '--target', 'foo')
        r = self.run_whet('bench', os.path.join(ARTIFACTS, 'phases.so'), '--runs', '1', env={'WHET_TARGET': 'x86-64-v3'})
        self.assertEqual(r.returncode, 0, r.stderr)
        # What all commands share is not meant for this one.
        shared = self.path('shared.toml', b'threads = 2\n[inspect]\ndb = "x.db"\n')
        r = self.run_whet('inspect', os.path.join(ARTIFACTS, 'phases.so'), '--config', shared, env={'WHET_TARGET': 'host'})
        self.assertEqual(r.returncode, 0, r.stderr)

    def test_pictures_need_to_be_told_how(self):
        art = os.path.join(ARTIFACTS, 'phases.so')
        png = self.path('p.png', b'\x89PNG\r\n\x1a\n' + b'\0' * 40)
        self.expect(2, ['is a picture', '--preprocess'], 'run', art, '--input', png)
        npy(self.path('x.npy'), [100, 10], [0.0] * 1000)
        self.expect(2, ["'bgr' is not one of crop="], 'run', art, '--input', 'x.npy', '--preprocess', 'bgr')
        self.expect(2, ['p.png'], 'run', art, '--input', png, '--preprocess', 'range=0,1')
        self.expect(2, ["'size=3' is not one of crop="], 'run', art, '--input', png, '--preprocess', 'size=3')

    def test_output_that_cannot_be_written_is_an_error(self):
        relu, chain = self.path('relu.onnx', RELU), self.path('chain.onnx', conv_chain(60))
        self.assertEqual(self.run_whet('compile', relu, '-o', 'relu.so').returncode, 0)
        for args in [['--help'], ['inspect', relu], ['inspect', chain, '--graph'], ['inspect', chain, '--json', '-'], ['inspect', 'relu.so'],
                     ['compile', relu, '-o', 'relu.so', '--explain'], ['verify', 'relu.so', relu, '--layers'], ['bench', '--dump-config'], ['doctor']]:
            with open('/dev/full', 'w') as full:
                r = subprocess.run([WHET, *args], env=self.env, cwd=self.dir, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
            self.assertEqual(r.returncode, 2, (args, r.stderr))
            self.assertIn('cannot write to standard output: No space left on device', r.stderr, args)
            read_end, write_end = os.pipe()
            os.close(read_end)
            r = subprocess.run([WHET, *args], env=self.env, cwd=self.dir, stdout=write_end, stderr=subprocess.PIPE, text=True, timeout=60)
            os.close(write_end)
            self.assertEqual((r.returncode, r.stderr), (2, ''), args)
        with open('/dev/full', 'w') as full:
            self.assertEqual(subprocess.run([WHET, 'inspect', 'absent.onnx'], env=self.env, cwd=self.dir, stderr=full, timeout=60).returncode, 2)

    def test_unwritable_json(self):
        self.expect(2, ['cannot write'], 'bench', os.path.join(ARTIFACTS, 'phases.so'), '--runs', '3', '--json', 'no/such/folder.json')

    # ---- models ----

    def test_files_that_are_no_models(self):
        random = self.path('random.onnx', bytes((i * 37 + i * i // 7) % 256 for i in range(3000)))
        for verb, extra in [('inspect', []), ('compile', ['-o', 'out.so']), ('tune', ['--dry-run'])]:
            self.expect(2, ['absent.onnx'], verb, 'absent.onnx', *extra)
            self.expect(2, ['empty.onnx'], verb, self.path('empty.onnx', b''), *extra)
            self.expect(2, [self.dir], verb, self.dir, *extra)
            self.expect(2, ['random.onnx'], verb, random, *extra)
            self.expect(2, ['cut.onnx'], verb, self.path('cut.onnx', RELU[:len(RELU) // 2]), *extra)
            self.expect(2, ['FrobnicateAll', 'frob7'], verb, self.path('op.onnx', UNSUPPORTED), *extra)
            self.expect(2, ["'x'", 'batch', '--shape'], verb, self.path('sym.onnx', SYMBOLIC), *extra)
            self.expect(2, ['--shape', 'x=1,3,224,224'], verb, self.path('relu.onnx', RELU), '--shape', 'x', *extra)
            self.expect(2, ['phases.so', 'a compiled model'], verb, os.path.join(ARTIFACTS, 'phases.so'), *([] if verb != 'inspect' else ['--graph']), *extra)
        self.assertFalse(os.path.exists(self.path('out.so')))

    def test_what_a_command_reads_or_cannot_replace_is_not_written(self):
        relu, db = self.path('relu.onnx', RELU), self.made_log()
        os.mkfifo(self.path('pipe'))
        os.symlink('relu.onnx', self.path('link.so'))
        for out in ['relu.onnx', 'link.so', '../%s/relu.onnx' % os.path.basename(self.dir)]:
            self.expect(2, [out, 'is read by this command'], 'compile', relu, '-o', out)
        self.expect(2, ['made.db', 'is read by this command'], 'compile', relu, '--db', db, '-o', db)
        self.expect(2, ["'pipe'", 'not a regular file'], 'compile', relu, '-o', 'pipe')
        self.expect(2, ["'%s'" % self.dir, 'it is a folder'], 'compile', relu, '-o', self.dir)
        self.expect(2, ["there is no folder 'none'"], 'compile', relu, '-o', 'none/relu.so')
        self.expect(2, ["there is no folder 'none'"], 'compile', relu, '-o', 'relu.so', '--json', 'none/relu.json')
        self.expect(2, ['it is a folder'], 'compile', relu, '-o', 'relu.so', '--json', self.dir)
        self.assertFalse(os.path.exists(self.path('relu.so')))
        self.assertEqual(read(relu), RELU)
        whole = read(self.path(db))
        self.expect(2, ['made.db', 'is read by this command'], 'log', 'export', db, '--db', db)
        self.assertEqual(read(self.path(db)), whole)
        for absent, why in [('none.jsonl', 'No such file'), (self.dir, 'it is a folder')]:
            self.expect(2, [absent, why], 'log', 'import', absent, '--db', 'new.db')
        self.assertFalse(os.path.exists(self.path('new.db')))

    def test_json_takes_the_place_of_no_other_file_of_a_command(self):
        relu, db, art = self.path('relu.onnx', RELU), self.made_log(), self.path('art.so', read(os.path.join(ARTIFACTS, 'phases.so')))
        config = self.path('c.toml', b'threads = 1\n')
        os.symlink('relu.onnx', self.path('link.json'))
        whole = {name: read(self.path(name)) for name in ['relu.onnx', 'made.db', 'art.so', 'c.toml']}
        is_read = ['--json', 'is read by this command']
        for command in [['inspect', relu], ['compile', relu, '-o', 'r.so'], ['tune', relu, '--dry-run'], ['verify', art, relu], ['demo', relu, 'me.png']]:
            self.expect(2, ['relu.onnx', *is_read], *command, '--json', './relu.onnx')
            self.expect(2, ['link.json', *is_read], *command, '--json', 'link.json')
        for command in [['log', 'stats'], ['log', 'export', 'e.jsonl'], ['inspect', relu], ['compile', relu, '-o', 'r.so'], ['tune', relu, '--dry-run']]:
            self.expect(2, [db, *is_read], *command, '--db', db, '--json', db)
        self.expect(2, [db, *is_read], 'inspect', db, '--json', db)
        self.expect(2, ['tuning.db', *is_read], 'tune', relu, '--dry-run', '--json', 'tuning.db')  # which is not there yet
        self.expect(2, ['art.so', *is_read], 'verify', art, relu, '--json', 'art.so')
        self.expect(2, ['--json and --out are one file', 'r.so'], 'compile', relu, '-o', 'r.so', '--json', './r.so')
        self.expect(2, ['--json and FILE are one file', 'e.jsonl'], 'log', 'export', 'e.jsonl', '--db', db, '--json', 'e.jsonl')
        for command in [['doctor'], ['log', 'stats', '--db', db], ['inspect', relu]]:
            self.expect(2, ['c.toml', *is_read], *command, '--config', config, '--json', 'c.toml')
            self.expect(2, ['c.toml', *is_read], *command, '--json', 'c.toml', env={'WHET_CONFIG': config})
        self.expect(2, ['--out', 'c.toml', 'is read by this command'], 'compile', relu, '--config', config, '-o', 'c.toml')
        self.assertEqual({name: read(self.path(name)) for name in whole}, whole)
        self.assertFalse(os.path.exists(self.path('r.so')) or os.path.exists(self.path('e.jsonl')))
        r = self.run_whet('compile', relu, '--config', config, '--db', db, '-o', 'r.so', '--json', 'r.json')
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertEqual(json.loads(read(self.path('r.json')))['output'], 'r.so')

    def test_weights_beside_the_model_are_not_written(self):
        entries = b''.join(field(13, field(1, k) + field(2, v)) for k, v in [('location', 'w.bin'), ('length', '32')])
        weights = field(1, 8) + field(2, 1) + field(8, 'w') + entries + field(14, 1)
        graph = field(1, node('Add', ['x', 'w'], ['y'], 'add1')) + field(2, 'g') + field(5, weights)
        graph += field(11, value_info('x', [8])) + field(12, value_info('y', [8]))
        ext = self.path('ext.onnx', field(1, 8) + field(7, graph) + field(8, field(1, '') + field(2, 13)))
        values = struct.pack('<8f', *range(8))
        self.path('w.bin', values)
        os.link(self.path('w.bin'), self.path('same.bin'))
        self.assertEqual(self.run_whet('compile', ext, '-o', 'ext.so').returncode, 0)
        for name in ['w.bin', 'same.bin']:
            for command in [['compile', ext, '-o', name], ['compile', ext, '-o', 'ext.so', '--json', name], ['inspect', ext, '--json', name],
                            ['verify', 'ext.so', ext, '--json', name], ['tune', ext, '--dry-run', '--json', name]]:
                self.expect(2, ["external data 'w.bin' is read by this command", name], *command)
        self.assertEqual(read(self.path('w.bin')), values)

    def test_more_memory_than_there_is_is_said(self):
        sym = self.path('sym.onnx', SYMBOLIC)
        r = self.run_whet('compile', sym, '--shape', 'x=34000000000,8', '-o', 'sym.so')
        self.assertEqual(r.returncode, 0, r.stderr)
        for verb in [['run', 'sym.so', '--input', 'x.npy'], ['bench', 'sym.so'], ['verify', 'sym.so', sym]]:
            self.expect(2, ['inputs and outputs take 2.0 TiB', 'smaller shapes'], *verb)
        with open(self.path('large.onnx'), 'wb') as f:
            f.truncate(1 << 30)
        self.expect(2, ['whet inspect: there is not enough memory'], 'inspect', 'large.onnx',
                    preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (600 << 20, 600 << 20)))

    def test_a_task_that_cannot_be_built_is_named_after_its_nodes(self):
        conv = node('Conv', ['x', 'w'], ['y'], 'conv1') + field(5, ints('kernel_shape', [3, 3])) + field(5, ints('pads', [1, 1, 1, 1]))
        graph = field(1, conv) + field(2, 'g') + field(5, initializer('w', [1, 3, 3, 3], [0.1] * 27))
        graph += field(11, value_info('x', [1, 3, 48, 'width'])) + field(12, value_info('y', [1, 1, 48, 'width']))
        wide = self.path('wide.onnx', field(1, 8) + field(7, graph) + field(8, field(1, '') + field(2, 13)))
        self.expect(2, ["task 'conv1' (", 'would have more than'], 'compile', wide, '--shape', 'x=1,3,48,999999999', '-o', 'wide.so')

    def test_a_model_compiles_runs_and_agrees_with_its_reference(self):
        relu = self.path('relu.onnx', RELU)
        r = self.run_whet('compile', relu, '-o', 'relu.so', '--json', '-')
        self.assertEqual(r.returncode, 0, r.stderr)
        j = json.loads(r.stdout)
        self.assertEqual((j['tasks'], j['tuned']), (1, 0))
        self.assertEqual(j['untuned'], [{'name': 'relu1', 'reason': 'no tuning log given'}])
        for log in [[], ['--db', self.made_log()]]:
            j = json.loads(self.run_whet('compile', relu, '--untuned', *log, '-o', 'untuned.so', '--json', '-').stdout)
            self.assertEqual((j['untuned'], j['plan']['reason']), ([{'name': 'relu1', 'reason': '--untuned'}], '--untuned'))
        self.assertTrue(j['seconds'] > 0 and 0 < j['peak_bytes'] < 500 << 20, j)
        npy(self.path('x.npy'), [1, 8], [-1.0, 2.0, -3.0, 4.0, -5.0, 6.0, -7.0, 8.0])
        r = self.run_whet('run', 'relu.so', '--input', 'x.npy', '--output-dir', 'out')
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertEqual(struct.unpack('<8f', read(self.path('out/y.npy'))[-32:]), (0, 2, 0, 4, 0, 6, 0, 8))
        self.assertEqual(self.run_whet('verify', 'relu.so', relu).returncode, 0)
        r = self.run_whet('verify', 'relu.so', self.path('other.onnx', RELU.replace(b'Relu', b'Tanh')), '--layers', '--json', '-')
        self.assertEqual(r.returncode, 1, r.stderr)
        self.assertEqual((json.loads(r.stdout)['passed'], json.loads(r.stdout)['first_divergent_layer']), (False, 'relu1'))
        picture = self.path('picture.onnx', model([node('Relu', ['picture'], ['y'], 'relu1')], [value_info('picture', [1, 8])], [value_info('y', [1, 8])]))
        r = self.expect(2, ["'relu.so' was compiled from another model, with an input 'x', which is no input of this; inputs: picture"], 'verify', 'relu.so', picture)
        self.assertNotIn('--shape', r.stderr)
        self.expect(2, ["--shape names 'x', which is no input"], 'verify', 'relu.so', picture, '--shape', 'x=1,8')
        loose = ['--rtol', '0', '--atol', '9']
        self.assertEqual(self.run_whet('verify', 'relu.so', 'other.onnx', *loose).returncode, 0)
        self.expect(2, ['has another shape', '--shape'], 'verify', 'relu.so', self.path('sym.onnx', SYMBOLIC), '--shape', 'x=3,8')
        g = json.loads(self.run_whet('inspect', relu, '--graph', '--json', '-').stdout)['graph']
        self.assertIn('= Relu(x)', g['before'])
        self.assertIn('= Relu(x)', g['after'])
        self.assertIn('# after the passes\ngraph', self.run_whet('inspect', relu, '--graph').stdout)
        self.assertIn('# graph pass mark-views changed nothing', self.run_whet('inspect', relu, '--dump-after', 'mark-views').stderr)
        self.expect(2, ["unknown graph pass 'nope'", 'fold-constants'], 'inspect', relu, '--dump-after', 'nope')
        j = json.loads(self.run_whet('inspect', relu, '--json', '-').stdout)
        self.assertEqual(j['inputs'], [{'name': 'x', 'dtype': 'f32', 'shape': [1, 8]}])
        self.assertEqual(j['outputs'], [{'name': 'y', 'dtype': 'f32', 'shape': [1, 8]}])
        self.assertEqual([(t['name'], t['count'], t['source']) for t in j['tasks']], [('relu1', 1, 'default')])
        self.assertEqual(self.run_whet('compile', self.path('sym.onnx', SYMBOLIC), '--shape', 'x=3,8', '-o', 'sym.so').returncode, 0)
        self.assertEqual(self.run_whet('verify', 'sym.so', 'sym.onnx', '--layers').returncode, 0)  # shapes: the artifact's
        self.assertEqual(json.loads(self.run_whet('inspect', 'sym.so', '--json', '-').stdout)['inputs'][0]['shape'], [3, 8])
        os.mkdir(self.path('tmp'))
        self.assertEqual(self.run_whet('compile', relu, '-o', 'relu.so', env={'TMPDIR': self.path('tmp')}).returncode, 0)
        self.assertEqual(os.listdir(self.path('tmp')), [])
        self.expect(2, ['TMPDIR'], 'compile', relu, '-o', 'relu.so', env={'TMPDIR': self.path('absent')})
        self.expect(2, ['no/such/out.so'], 'compile', relu, '-o', 'no/such/out.so')
        self.expect(2, ['-o FILE is missing'], 'compile', relu)
        self.expect(2, ['-o FILE is missing', '--output names values'], 'compile', relu, '--output', 'b.so')
        self.expect(2, ['avx9000'], 'compile', relu, '-o', 'o.so', '--target', 'cpu -arch=x86_64 -mattr=+avx9000')
        self.expect(2, ['arch'], 'compile', relu, '-o', 'o.so', '--target', 'cpu -arch=z80')

    def test_inputs_and_dimensions_are_bound(self):
        add = self.path('add.onnx', model([node('Relu', ['x'], ['h'], 'relu1'), node('Add', ['h', 'bias'], ['y'], 'add1')],
                                          [value_info('x', ['batch', 4]), value_info('bias', [])], [value_info('y', ['batch', 4])]))
        r = self.run_whet('compile', add, '--bind', 'bias=0.5', '--bind', 'batch=2', '--output', 'h', '-o', 'add.so')
        self.assertEqual(r.returncode, 0, r.stderr)
        j = json.loads(self.run_whet('inspect', 'add.so', '--json', '-').stdout)
        self.assertEqual([(i['name'], i['shape']) for i in j['inputs']], [('x', [2, 4])])
        self.assertEqual([o['name'] for o in j['outputs']], ['y', 'h'])
        npy(self.path('x.npy'), [2, 4], [-1.0, 2.0, -3.0, 4.0, -5.0, 6.0, -7.0, 8.0])
        self.assertEqual(self.run_whet('run', 'add.so', '--input', 'x.npy').returncode, 0)
        self.assertEqual(struct.unpack('<8f', read(self.path('y.npy'))[-32:]), (0.5, 2.5, 0.5, 4.5, 0.5, 6.5, 0.5, 8.5))
        self.assertEqual(struct.unpack('<8f', read(self.path('h.npy'))[-32:]), (0, 2, 0, 4, 0, 6, 0, 8))
        self.assertEqual(self.run_whet('verify', 'add.so', add).returncode, 0)  # bound values and outputs: the artifact's
        self.expect(2, ["--bind names 'bais'", "did you mean 'bias'?"], 'inspect', add, '--bind', 'bais=1')
        self.expect(2, ['--bind', 'sr=16000'], 'inspect', add, '--bind', 'bias')
        self.expect(2, ["--output names 'g'"], 'compile', add, '--bind', 'bias=1', '--bind', 'batch=1', '--output', 'g', '-o', 'add.so')

    def test_a_pipe_as_model_is_refused_at_once(self):
        os.mkfifo(self.path('pipe.onnx'))
        self.expect(2, ['not a regular file'], 'compile', self.path('pipe.onnx'), '-o', 'pipe.so')
        self.expect(2, ['not a regular file'], 'inspect', self.path('pipe.onnx'))
        self.expect(2, ['not a regular file'], 'bench', self.path('pipe.onnx'))
        self.expect(2, ['not a regular file'], 'run', os.path.join(ARTIFACTS, 'phases.so'), '--input', self.path('pipe.onnx'))

    def test_one_artifact_for_several_sets_of_shapes(self):
        sym = self.path('sym.onnx', SYMBOLIC)
        r = self.run_whet('compile', sym, '--shape', 'x=1,8', '--shape', 'x=3,8', '-o', 'sym.so', '--json', '-')
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertEqual(json.loads(r.stdout)['tasks'], 2)
        for batch in [1, 3]:
            values = [float(i - 4) for i in range(8 * batch)]
            npy(self.path('x.npy'), [batch, 8], values)
            r = self.run_whet('run', 'sym.so', '--input', 'x.npy', '--json', '-')
            self.assertEqual(r.returncode, 0, r.stderr)
            self.assertEqual(json.loads(r.stdout)['outputs'][0]['shape'], [batch, 8])
            self.assertEqual(list(struct.unpack('<%df' % len(values), read(self.path('y.npy'))[-4 * len(values):])), [max(0, v) for v in values])
        npy(self.path('x.npy'), [2, 8], [0.0] * 16)
        self.expect(2, ['2x8', 'sets of inputs', '1x8', '3x8'], 'run', 'sym.so', '--input', 'x.npy')
        # A set that is too large for this machine stands in no other's way, wherever it is.
        for sets in [['x=34000000000,8', 'x=2,8'], ['x=2,8', 'x=34000000000,8']]:
            r = self.run_whet('compile', sym, '--shape', sets[0], '--shape', sets[1], '-o', 'huge.so')
            self.assertEqual(r.returncode, 0, r.stderr)
            r = self.run_whet('run', 'huge.so', '--input', 'x.npy')
            self.assertEqual(r.returncode, 0, r.stderr)
            npy(self.path('other.npy'), [4, 8], [0.0] * 32)
            self.expect(2, ['other.npy', 'has shape 4x8', 'sets of inputs'], 'run', 'huge.so', '--input', 'other.npy')
            if sets[0] != 'x=2,8':  # without a file the first is meant
                self.expect(2, ['inputs and outputs take 2.0 TiB'], 'bench', 'huge.so')
        r = self.run_whet('verify', 'sym.so', sym, '--json', '-')
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertEqual([o['name'] for o in json.loads(r.stdout)['outputs']], ['set 1: y', 'set 2: y'])
        self.assertEqual(self.run_whet('verify', 'sym.so', sym, '--shape', 'x=3,8').returncode, 0)
        self.expect(2, ['not compiled for inputs of 5x8'], 'verify', 'sym.so', sym, '--shape', 'x=5,8')
        self.assertEqual(self.run_whet('bench', 'sym.so', '--shape', 'x=3,8', '--runs', '5').returncode, 0)
        self.expect(2, ['not compiled for inputs of 5x8'], 'bench', 'sym.so', '--shape', 'x=5,8')
        for verb in [['bench', 'sym.so'], ['verify', 'sym.so', sym]]:
            self.expect(2, ['--shape', 'one set'], *verb, '--shape', 'x=1,8', '--shape', 'x=3,8')
        self.assertIn('starts another set of', ' '.join(self.run_whet('compile', '--help').stdout.split()))
        self.assertNotIn('another set', ' '.join(self.run_whet('verify', '--help').stdout.split()))
        self.expect(2, ["no input 'z'", "'x' f32 1x8; or 'x' f32 3x8"], 'bench', 'sym.so', '--shape', 'z=3,8')
        self.expect(2, ['sets 1 and 3 of shapes are the same'], 'compile', sym, '--shape', 'x=1,8', '--shape', 'x=3,8', '--shape', 'x=1,8', '-o', 'twice.so')
        both = ['inspect', sym, '--shape', 'x=1,8', '--shape', 'x=3,8']
        r = self.run_whet(*both, '--graph')
        for line in ["2 tasks, 2 kernel launches for 2 sets of shapes together", "input    'x' f32 1x8", "or input 'x' f32 3x8", '# as imported, for the first set of shapes']:
            self.assertIn(line, r.stdout, r.stderr)
        j = json.loads(self.run_whet(*both, '--json', '-').stdout)
        self.assertEqual((len(j['tasks']), j['launches'], j['further_inputs']), (2, 2, [[{'name': 'x', 'dtype': 'f32', 'shape': [3, 8]}]]))
        j = json.loads(self.run_whet('inspect', 'sym.so', '--json', '-').stdout)
        self.assertEqual((len(j['tasks']), j['launches']), (2, 2))
        # Weights that the sets have in common are there once.
        nodes = [node('MatMul', ['x', 'w'], ['y'], 'dense1')]
        graph = b''.join(field(1, n) for n in nodes) + field(2, 'g') + field(5, initializer('w', [64, 4096], [0.001 * (i % 997) for i in range(64 * 4096)]))
        graph += field(11, value_info('x', ['batch', 64])) + field(12, value_info('y', ['batch', 4096]))
        dense = self.path('dense.onnx', field(1, 8) + field(7, graph) + field(8, field(1, '') + field(2, 13)))
        sizes = []
        for i, shapes in enumerate([['x=16,64'], ['x=16,64', 'x=32,64']]):
            r = self.run_whet('compile', dense, *[a for s in shapes for a in ('--shape', s)], '-o', 'dense.so', '--json', '-')
            self.assertEqual(r.returncode, 0, r.stderr)
            sizes.append(json.loads(r.stdout)['artifact_bytes'])
        self.assertLess(sizes[1], sizes[0] + (256 << 10))
        self.assertEqual(self.run_whet('verify', 'dense.so', dense).returncode, 0)

    def test_two_compilations_to_one_output_leave_one_of_them_whole(self):
        models = [self.path('relu.onnx', RELU), self.path('tanh.onnx', RELU.replace(b'Relu', b'Tanh'))]
        alone = []
        for i, model in enumerate(models):
            self.assertEqual(self.run_whet('compile', model, '--name', 'm', '-o', '%d.so' % i).returncode, 0)
            alone.append(read(self.path('%d.so' % i)))
        self.assertNotEqual(alone[0], alone[1])
        both = [self.start('whet', 'compile', model, '--name', 'm', '-o', 'same.so') for model in models]
        self.assertEqual([p.wait() for p in both], [0, 0])
        self.assertIn(read(self.path('same.so')), alone)
        self.assertEqual(sorted(os.listdir(self.dir)), ['0.so', '1.so', 'relu.onnx', 'same.so', 'tanh.onnx'])

    def test_an_interrupted_compilation_leaves_nothing_behind(self):
        os.mkdir(self.path('tmp'))
        self.env['TMPDIR'] = self.path('tmp')
        compile_ = self.start('whet', 'compile', self.path('chain.onnx', conv_chain(60)), '-o', 'chain.so')
        self.wait_until(lambda: any(files for _, _, files in os.walk(self.path('tmp'))))
        self.assertEqual(compile_.stop(signal.SIGTERM), 130, compile_.errors())
        self.assertIn('interrupted', compile_.errors())
        self.assertEqual(os.listdir(self.path('tmp')), [])
        self.assertEqual(sorted(os.listdir(self.dir)), ['chain.onnx', 'tmp'])

    # ---- logs ----

    def test_corrupt_and_foreign_logs(self):
        relu = self.path('relu.onnx', RELU)
        self.path('text.db', b'hello world ' * 100)
        self.path('cut.db', read(self.path(self.made_log()))[:9000])
        os.mkdir(self.path('folder.db'))
        with contextlib.closing(sqlite3.connect(self.path('foreign.db'))) as db:
            db.execute('CREATE TABLE t(x)')
        for name, why in [('text.db', 'not a SQLite database'), ('foreign.db', 'of another program'), ('cut.db', 'damaged'), ('folder.db', 'is a folder'),
                          ('no/such.db', 'no')]:
            before = read(self.path(name)) if os.path.isfile(self.path(name)) else None
            for command in [('log', 'stats'), ('inspect', relu), ('compile', relu, '-o', 'r.so'), ('tune', relu, '--trials', '1')]:
                self.expect(2, [name, why], *command, '--db', name)
            if before is not None:
                self.assertEqual(read(self.path(name)), before)
        self.expect(2, ['empty.db', 'it is empty'], 'log', 'best', '--db', self.path('empty.db', b''))
        self.expect(2, ['absent.db', 'does not exist'], 'log', 'best', '--db', 'absent.db')
        self.expect(2, ['best', 'stats', 'export'], 'log', 'frobnicate')
        self.expect(2, ['cannot write'], 'log', 'export', 'no/such/dir.jsonl', '--db', 'made.db')
        self.assertEqual(os.listdir(self.path('folder.db')), [])

    def made_log(self):
        """An empty tuning log: importing nothing makes one."""
        empty = b'{"kind":"whet-log","version":1,"log_id":"%s","generation":"%s"}\n{"kind":"end","rows":0}\n' % (b'a' * 32, b'b' * 32)
        r = self.run_whet('log', 'import', self.path('empty.jsonl', empty), '--db', 'made.db')
        self.assertEqual(r.returncode, 0, r.stderr)
        return 'made.db'

    def test_an_empty_log_answers_every_action(self):
        db = self.made_log()
        for action in ['best', 'stats', 'check']:
            r = self.run_whet('log', action, '--db', db, '--json', '-')
            self.assertEqual(r.returncode, 0, r.stderr)
            self.assertIsInstance(json.loads(r.stdout), dict)
            self.expect(2, [action + ' takes no FILE', '--db other.db'], 'log', action, 'other.db', '--db', db)
        self.assertIn('"kind":"end"', self.run_whet('log', 'export', '-', '--db', db).stdout)
        self.assertEqual(json.loads(self.run_whet('inspect', db, '--json', '-').stdout)['kind'], 'log')

    def test_a_log_is_backed_up_restored_pruned_and_salvaged(self):
        db = self.made_log()
        self.expect(2, ['backup needs the FILE'], 'log', 'backup', '--db', db)
        backup = json.loads(self.run_whet('log', 'backup', 'b.db', '--db', db, '--json', '-').stdout)
        self.assertEqual((backup['file'], backup['bytes']), ('b.db', os.path.getsize(self.path('b.db'))))
        self.expect(2, ['b.db', 'is there already'], 'log', 'backup', 'b.db', '--db', db)
        before = json.loads(self.run_whet('log', 'stats', '--db', db, '--json', '-').stdout)
        self.assertEqual(before['bytes'], backup['bytes'])
        for kept_as in ['made.db.before-restore', 'made.db.before-restore.2']:
            restored = json.loads(self.run_whet('log', 'restore', 'b.db', '--db', db, '--json', '-').stdout)
            self.assertEqual(os.path.realpath(restored['kept_as']), os.path.realpath(self.path(kept_as)))
            self.assertNotEqual(restored['generation'], before['generation'])
        self.assertEqual(self.run_whet('log', 'restore', 'b.db', '--db', 'new.db').returncode, 0)
        self.expect(0, [], 'log', 'check', '--db', 'new.db')
        self.expect(2, ['none.db', 'no backup'], 'log', 'restore', 'none.db', '--db', db)
        self.expect(2, ['needs a limit', '--keep-days'], 'log', 'prune', '--db', db)
        self.expect(2, ['absent.db', 'does not exist'], 'log', 'prune', '--keep-trials', '5', '--db', 'absent.db')
        pruned = json.loads(self.run_whet('log', 'prune', '--keep-trials', '5', '--db', db, '--json', '-').stdout)
        self.assertEqual((pruned['forgotten'], pruned['kept']), (0, 0))
        self.assertFalse(json.loads(self.run_whet('log', 'salvage', '--db', db, '--json', '-').stdout)['salvaged'])

    # ---- servers ----

    def test_servers_that_do_not_answer_within_five_seconds(self):
        relu = self.path('relu.onnx', RELU)
        with socket.socket() as closed:  # bound, never listening: connections are refused
            closed.bind(('127.0.0.1', 0))
            address = '127.0.0.1:%d' % closed.getsockname()[1]
            begin = time.monotonic()
            commands = [('devices', '--tracker', address), ('jobs', '--server', address), ('tune', relu, '--server', address, '--key', 'k'),
                        ('compile', relu, '--server', address, '-o', 'r.so'), ('inspect', relu, '--server', address)]
            running = [subprocess.Popen([WHET, *c], env=self.env, cwd=self.dir, stderr=subprocess.PIPE, text=True) for c in commands]
            for command, process in zip(commands, running):
                _, err = process.communicate(timeout=60)
                self.assertEqual(process.returncode, 3, (command, err))
                self.assertIn(address, err)
            self.assertLess(time.monotonic() - begin, 5)
        self.expect(2, ["'nonsense' is not HOST:PORT"], 'devices', '--tracker', 'nonsense')
        for port in ['0', '65536', '99999999999999999999']:
            self.expect(2, ["'localhost:%s' is not HOST:PORT: ports are" % port], 'devices', '--tracker', 'localhost:' + port)
        self.expect(2, ['one of --tracker', '--server'], 'devices')

    def test_flags_that_exclude_each_other(self):
        relu = self.path('relu.onnx', RELU)
        self.expect(2, ['--db and --server exclude'], 'tune', relu, '--db', 'a.db', '--server', '127.0.0.1:1')
        self.expect(2, ['--server needs --key'], 'tune', relu, '--server', '127.0.0.1:1')
        self.expect(2, ['--key', 'without --server'], 'tune', relu, '--key', 'rpi4')
        self.expect(2, ["--time 'soon'"], 'tune', relu, '--time', 'soon')
        self.expect(2, ["--tasks '('"], 'tune', relu, '--tasks', '(')
        self.expect(2, ["--tasks 'nothing-like-it'"], 'tune', relu, '--tasks', 'nothing-like-it')
        self.expect(2, ['the model has no tasks'], 'tune', self.path('sym.onnx', SYMBOLIC), '--shape', 'x=0,8')

    def test_a_local_server_that_does_not_start_is_shown_with_its_last_words(self):
        """A copy of the command beside programs that fail."""
        for name, script in [('tuner-server', '#!/bin/sh\necho the disk is on fire >&2\nexit 1\n'), ('rpc-worker', '#!/bin/sh\nexit 0\n')]:
            p = self.path(name, script.encode())
            os.chmod(p, stat.S_IRWXU)
        copy = self.path('whet')
        shutil.copy(WHET, copy)
        self.expect(3, ['tuner-server exited with 1', 'the disk is on fire'], 'tune', self.path('relu.onnx', RELU), '--db', 't.db', '--trials', '1', program=copy)

    def test_doctor_reports_and_fails_where_programs_are_missing(self):
        r = self.run_whet('doctor', '--json', '-')
        self.assertEqual(r.returncode, 0, r.stdout)
        what = {f['what']: f for f in json.loads(r.stdout)['findings']}
        self.assertEqual(what['whet-builder']['level'], 'ok')
        # Each layer that is there by name; each wall there is or what to do about it.
        self.assertIn('limits', what['sandbox']['value'])
        walls = [f for name, f in what.items() if name.startswith('walls: ')]
        self.assertEqual(len(walls), 6, what)
        for f in walls:
            self.assertEqual(f['level'] == 'ok', f['fix'] == '', f)
        copy = self.path('whet')
        shutil.copy(WHET, copy)
        alone = self.run_whet('doctor', program=copy)
        self.assertEqual(alone.returncode, 1)
        self.assertIn('FAIL  whet-builder', alone.stdout)


if __name__ == '__main__':
    unittest.main(verbosity=2)
