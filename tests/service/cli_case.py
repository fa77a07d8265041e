"""What the tests of the command line share: a folder of one's own, programs run from outside, models made byte by byte.

Needs WHET_BIN_DIR (the programs) and WHET_TEST_ARTIFACTS (hand-written artifacts).
"""

import os
import select
import shutil
import signal
import struct
import subprocess
import tempfile
import time
import unittest

BIN = os.environ['WHET_BIN_DIR']
ARTIFACTS = os.environ['WHET_TEST_ARTIFACTS']
WHET = os.path.join(BIN, 'whet')


# ---- ONNX models, written with the few parts of protobuf's wire format that they need ----

def varint(value):
    out = b''
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def field(number, payload):
    if isinstance(payload, int):
        return varint(number << 3) + varint(payload)
    if isinstance(payload, str):
        payload = payload.encode()
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def value_info(name, dims, elem_type=1):
    shape = b''.join(field(1, field(2, d) if isinstance(d, str) else field(1, d)) for d in dims)
    return field(1, name) + field(2, field(1, field(1, elem_type) + field(2, shape)))


def node(op, inputs, outputs, name):
    return b''.join(field(1, i) for i in inputs) + b''.join(field(2, o) for o in outputs) + field(3, name) + field(4, op)


def model(nodes, inputs, outputs, opset=13):
    graph = b''.join(field(1, n) for n in nodes) + field(2, 'g')
    graph += b''.join(field(11, i) for i in inputs) + b''.join(field(12, o) for o in outputs)
    return field(1, 8) + field(7, graph) + field(8, field(1, '') + field(2, opset))


RELU = model([node('Relu', ['x'], ['y'], 'relu1')], [value_info('x', [1, 8])], [value_info('y', [1, 8])])
WIDE = model([node('Relu', ['x'], ['y'], 'relu1')], [value_info('x', [1, 64, 32, 32])], [value_info('y', [1, 64, 32, 32])])
SYMBOLIC = model([node('Relu', ['x'], ['y'], 'relu1')], [value_info('x', ['batch', 8])], [value_info('y', ['batch', 8])])
UNSUPPORTED = model([node('FrobnicateAll', ['x'], ['y'], 'frob7')], [value_info('x', [1, 8])], [value_info('y', [1, 8])])


def initializer(name, dims, values):
    return b''.join(field(1, d) for d in dims) + field(2, 1) + field(8, name) + field(9, struct.pack('<%df' % len(values), *values))


def ints(name, values):
    return field(1, name) + b''.join(field(8, v) for v in values) + field(20, 7)


def conv_chain(length):
    """Convolutions, each of another width: some work for a compiler."""
    nodes, weights, name, width = [], b'', 'x', 8
    for i in range(length):
        nodes.append(node('Conv', [name, 'w%d' % i], ['c%d' % i], 'conv%d' % i) + field(5, ints('kernel_shape', [1, 1])))
        weights += field(5, initializer('w%d' % i, [width + 1, width, 1, 1], [0.01] * (width * (width + 1))))
        name, width = 'c%d' % i, width + 1
    graph = b''.join(field(1, n) for n in nodes) + field(2, 'g') + weights
    graph += field(11, value_info('x', [1, 8, 8, 8])) + field(12, value_info(name, [1, width, 8, 8]))
    return field(1, 8) + field(7, graph) + field(8, field(1, '') + field(2, 13))


def conv_model():
    """A convolution, a rectifier and a global mean: few tasks, each with something to choose."""
    channels, size = 16, 24
    weights = [((i * 7919) % 1000 - 500) / 4000 for i in range(channels * 8 * 9)]
    nodes = [node('Conv', ['picture', 'w'], ['c'], 'conv1') + field(5, ints('kernel_shape', [3, 3])) + field(5, ints('pads', [1, 1, 1, 1])),
             node('Relu', ['c'], ['r'], 'relu1'),
             node('GlobalAveragePool', ['r'], ['mean'], 'pool1')]
    graph = b''.join(field(1, n) for n in nodes) + field(2, 'g') + field(5, initializer('w', [channels, 8, 3, 3], weights))
    graph += field(11, value_info('picture', [1, 8, size, size])) + field(12, value_info('mean', [1, channels, 1, 1]))
    return field(1, 8) + field(7, graph) + field(8, field(1, '') + field(2, 13))


def npy(path, dims, values, code='f', descr='<f4'):
    header = "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }" % (descr, ''.join('%d,' % d for d in dims))
    header += ' ' * (63 - (10 + len(header)) % 64) + '\n'
    with open(path, 'wb') as f:
        f.write(b'\x93NUMPY\x01\x00' + struct.pack('<H', len(header)) + header.encode() + struct.pack('<%d%s' % (len(values), code), *values))


def read(path):
    with open(path, 'rb') as f:
        return f.read()


class Started:
    """A running program: its standard output is read as it comes, its standard error is in a file."""

    def __init__(self, case, program, args):
        self.case = case
        self.output = ''
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen([os.path.join(BIN, program), *args], cwd=case.dir, env=case.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=self.log)

    def listening(self, role):
        """The address of the line "listening on ADDRESS role"."""
        deadline = time.monotonic() + 20
        while True:
            for line in self.output.splitlines():
                words = line.split()
                if len(words) == 4 and words[:2] == ['listening', 'on'] and words[3] == role:
                    return words[2]
            ready, _, _ = select.select([self.process.stdout], [], [], max(0, deadline - time.monotonic()))
            chunk = os.read(self.process.stdout.fileno(), 4096) if ready else b''
            self.case.assertTrue(chunk, 'no line of role %s: %s' % (role, self.errors()))
            self.output += chunk.decode()

    def errors(self):
        self.log.seek(0)
        return self.log.read().decode()

    def wait(self, seconds=60):
        """Its exit code, once it has ended by itself."""
        self.output += self.process.communicate(timeout=seconds)[0].decode()
        return self.process.returncode

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.wait()

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.log.close()


class CliCase(unittest.TestCase):

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix='whet-cli-')
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        self.env = {k: v for k, v in os.environ.items() if not k.startswith('WHET_')}
        self.env['XDG_STATE_HOME'] = os.path.join(self.dir, 'state')
        self.env['XDG_CACHE_HOME'] = tempfile.mkdtemp(prefix='whet-cli-cache-')
        self.addCleanup(shutil.rmtree, self.env['XDG_CACHE_HOME'], ignore_errors=True)

    def path(self, name, content=None):
        p = os.path.join(self.dir, name)
        if content is not None:
            with open(p, 'wb') as f:
                f.write(content)
        return p

    def run_whet(self, *args, env=None, program=WHET, **kwargs):
        return subprocess.run([program, *args], cwd=self.dir, env={**self.env, **(env or {})}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=60, **kwargs)

    def start(self, program, *args):
        """A program in the background; it is gone when the test ends."""
        started = Started(self, program, args)
        self.addCleanup(started.end)
        return started

    def expect(self, code, fragments, *args, **kwargs):
        """Runs; checks exit code and that standard error has every fragment and no stack of a crash."""
        r = self.run_whet(*args, **kwargs)
        self.assertEqual(r.returncode, code, '%s\nstdout: %s\nstderr: %s' % (args, r.stdout, r.stderr))
        for fragment in [fragments] if isinstance(fragments, str) else fragments:
            self.assertIn(fragment, r.stderr, args)
        return r

    def wait_until(self, condition, seconds=20):
        end = time.monotonic() + seconds
        while not condition():
            self.assertLess(time.monotonic(), end, 'waited for %d s' % seconds)
            time.sleep(0.02)

    def children_of(self, pid):
        with open('/proc/%d/task/%d/children' % (pid, pid)) as f:
            return [int(p) for p in f.read().split()]

    def runs(self, pid):
        try:
            with open('/proc/%d/stat' % pid) as f:
                return f.read().rsplit(')', 1)[1].split()[0] != 'Z'
        except OSError:
            return False
