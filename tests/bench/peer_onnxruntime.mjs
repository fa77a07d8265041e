// Compares compiled artifacts with onnxruntime on the same model, input, core and thread.
//
//   npm install --ignore-scripts onnxruntime-node@1.30.0        (in a folder of your choice, here /tmp/ort)
//   node tests/bench/peer_onnxruntime.mjs --ort /tmp/ort --model model.onnx --artifact tuned.so [--artifact default.so]
//        [--whet build/bin/whet] [--input NAME=FILE.npy ...] [--ort-input NAME=FILE.npy ...] [--threads 1[,2]] [--core 0]
//        [--pairs 40] [--block-ms 25] [--rtol 2e-5] [--atol 0] [--verify '--bind sr=16000'] [--tasks yes] [--json out.json]
//
// --verify: where outputs differ by more than that, `whet verify` with these flags and the same input has to find ours where the
// reference in double precision is, and 99 of 100 elements have to agree: a network that picks peaks picks others where rounding
// decides, and onnxruntime does so against itself with other optimisations. --tasks: one more contender, "tasks", the sum of the
// first artifact's tasks, each timed by itself on weights that take turns.
//
// --ort-input gives an input that the artifact does not have any more: what `--bind` made a constant. With several numbers
// of threads every contender runs with each, named "NAME on N" beyond the first; --core then lists a core for each thread;
// --artifact-on N=FILE.so gives the artifact to run on N threads in place of the others, compiled for so many.
//
// How: every contender is a live process pinned to its cores, all graph optimisations on, weights packed beforehand. They take turns in blocks of at least --block-ms, who begins rotates, and this process sleeps meanwhile. Each
// round gives one ratio per pair of contenders; reported are the median of the ratios and its 95 % interval from order
// statistics. Before any timing the outputs are compared: |difference| <= rtol * largest magnitude of the output + atol.
// onnxruntime's figure includes its JavaScript call, about 0.01 ms; the computation itself is native, on one thread.
// Exit codes: 0 done, 1 outputs differ, 2 usage.
import { spawn, execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { createRequire } from 'node:module';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import readline from 'node:readline';

const kTypes = {
  '<f4': ['float32', Float32Array], '<f8': ['float64', Float64Array], '<i4': ['int32', Int32Array], '<i8': ['int64', BigInt64Array],
  '|u1': ['uint8', Uint8Array], '|i1': ['int8', Int8Array], '|b1': ['bool', Uint8Array],
};

function fail(message, code = 2) {
  process.stderr.write(`peer_onnxruntime: ${message}\n`);
  process.exit(code);
}

function readNpy(file) {
  const b = fs.readFileSync(file);
  if (b.toString('latin1', 0, 6) !== '\x93NUMPY') fail(`'${file}' is not an .npy file`);
  const long = b[6] > 1, begin = long ? 12 : 10, length = long ? b.readUInt32LE(8) : b.readUInt16LE(8);
  const header = b.toString('latin1', begin, begin + length);
  const [type, Ctor] = kTypes[/'descr': *'([^']+)'/.exec(header)[1]] ?? fail(`'${file}': element type not supported here`);
  const dims = /'shape': *\(([^)]*)\)/.exec(header)[1].split(',').map((x) => x.trim()).filter((x) => x).map(Number);
  const bytes = Uint8Array.prototype.slice.call(b, begin + length);  // a copy, so that it is aligned
  return { type, dims, data: new Ctor(bytes.buffer, 0, bytes.length / Ctor.BYTES_PER_ELEMENT) };
}

function writeNpy(file, { type, dims, data }) {
  const descr = Object.keys(kTypes).find((k) => kTypes[k][0] === type);
  const shape = dims.length === 1 ? `${dims[0]},` : dims.join(', ');
  let header = `{'descr': '${descr}', 'fortran_order': False, 'shape': (${shape}), }`;
  header += ' '.repeat(63 - ((10 + header.length) % 64)) + '\n';
  const prefix = Buffer.from([0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59, 1, 0, header.length & 255, header.length >> 8]);
  fs.writeFileSync(file, Buffer.concat([prefix, Buffer.from(header, 'latin1'), Buffer.from(data.buffer, data.byteOffset, data.byteLength)]));
}

function options(argv) {
  const o = { artifact: [], 'artifact-on': [], input: [], 'ort-input': [], threads: '1', whet: 'build/bin/whet', core: '0', pairs: '40', 'block-ms': '25', rtol: '2e-5', atol: '0', tasks: 'no' };
  const known = ['ort', 'model', 'artifact', 'artifact-on', 'whet', 'input', 'ort-input', 'threads', 'core', 'pairs', 'block-ms', 'rtol', 'atol', 'verify', 'tasks', 'json', 'serve'];
  for (let i = 0; i < argv.length; i += 2) {
    const key = argv[i].replace(/^--/, '');
    if (!known.includes(key) || argv[i + 1] === undefined) fail(`unknown or incomplete flag '${argv[i]}'; the flags are ${known.slice(0, -1).map((k) => '--' + k).join(', ')}`);
    if (Array.isArray(o[key])) o[key].push(argv[i + 1]);
    else o[key] = argv[i + 1];
  }
  if (!o.ort || !o.model) fail('--ort DIR (where onnxruntime-node is installed) and --model FILE are needed');
  return o;
}

function loadOrt(dir) {
  try {
    return createRequire(path.resolve(dir) + '/')('onnxruntime-node');
  } catch (e) {
    return fail(`cannot load onnxruntime-node from '${dir}': ${e.message}`);
  }
}

const openSession = (ort, model, threads) => ort.InferenceSession.create(model, {
  intraOpNumThreads: threads, interOpNumThreads: 1, executionMode: 'sequential', graphOptimizationLevel: 'all', executionProviders: ['cpu'], logSeverityLevel: 3,
});

function feedsFrom(ort, session, inputs) {
  const feeds = {};
  for (const spec of inputs) {
    const cut = spec.lastIndexOf('=');
    const name = cut < 0 ? session.inputNames[0] : spec.slice(0, cut);
    const a = readNpy(spec.slice(cut + 1));
    feeds[name] = new ort.Tensor(a.type, a.data, a.dims);
  }
  return feeds;
}

// Inputs that were not given: uniform in [-1, 1), integers zero, from a fixed seed.
function makeInputs(session, given, dir) {
  const named = new Set(given.map((s) => (s.includes('=') ? s.slice(0, s.lastIndexOf('=')) : session.inputNames[0])));
  let state = 12345;
  const next = () => ((state = (Math.imul(state, 1103515245) + 12345) >>> 0) / 2 ** 31 - 1);
  const all = [...given];
  session.inputMetadata.forEach((m, i) => {
    if (named.has(m.name)) return;
    if (!m.shape.every((d) => typeof d === 'number')) fail(`input '${m.name}' has symbolic dimensions ${m.shape}; give it with --input ${m.name}=FILE.npy`);
    const n = m.shape.reduce((a, b) => a * b, 1);
    const Ctor = Object.values(kTypes).find((t) => t[0] === m.type)?.[1] ?? fail(`input '${m.name}' of type ${m.type}: give it with --input`);
    const data = new Ctor(n);
    if (m.type.startsWith('float')) for (let k = 0; k < n; ++k) data[k] = next();
    const file = path.join(dir, `input_${i}.npy`);
    writeNpy(file, { type: m.type, dims: m.shape, data });
    all.push(`${m.name}=${file}`);
  });
  return all;
}

// The protocol of `whet bench --serve-blocks`: "ready", then for each line "run N" the milliseconds of one run.
async function serve(o) {
  const ort = loadOrt(o.ort);
  const session = await openSession(ort, o.model, Number(o.threads));
  const feeds = feedsFrom(ort, session, [...o.input, ...o['ort-input']]);
  await session.run(feeds);
  console.log('ready');
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const n = Number(line.split(' ')[1]);
    const begin = process.hrtime.bigint();
    for (let i = 0; i < n; ++i) await session.run(feeds);
    console.log((Number(process.hrtime.bigint() - begin) / 1e6 / n).toFixed(6));
  }
  process.exit(0);
}

class Contender {
  constructor(name, core, command) {
    this.name = name;
    this.samples = [];
    this.child = spawn('taskset', ['-c', core, ...command], { stdio: ['pipe', 'pipe', 'inherit'] });
    this.child.on('error', (e) => fail(`cannot start ${command[0]}: ${e.message}`));
    this.lines = readline.createInterface({ input: this.child.stdout })[Symbol.asyncIterator]();
  }
  async line() {
    const { value, done } = await this.lines.next();
    if (done) fail(`${this.name} ended early`, 1);
    return value;
  }
  async run(n, what = 'run') {
    this.child.stdin.write(`${what} ${n}\n`);
    return Number(await this.line());
  }
  // Enough runs for a block, found by doubling; warms up on the way.
  async calibrate(blockMs) {
    if ((await this.line()) !== 'ready') fail(`${this.name} does not speak the protocol`, 1);
    let n = 1, ms = await this.run(1);
    while (ms * n < blockMs * 4) { n *= 2; ms = await this.run(n); }
    this.runs = Math.ceil(blockMs / ms * 1.05);
    for (let i = 0; i < 3; ++i) await this.run(this.runs);
  }
}

// The same process as another contender, and what it says of the tasks.
class Tasks {
  constructor(of) {
    this.name = 'tasks';
    this.samples = [];
    this.of = of;
    this.child = of.child;
  }
  run(n) { return this.of.run(n, 'tasks'); }
  async calibrate(blockMs) { this.runs = Math.max(1, Math.round(blockMs / 4 / await this.run(1))); }
}

const quantile = (values, q) => {
  const s = [...values].sort((a, b) => a - b), at = q * (s.length - 1), low = Math.floor(at);
  return s[low] + (s[Math.min(low + 1, s.length - 1)] - s[low]) * (at - low);
};
function interval(values) {
  const s = [...values].sort((a, b) => a - b), n = s.length, reach = 1.96 * Math.sqrt(n) / 2;
  return [s[Math.max(0, Math.floor(n / 2 - reach))], s[Math.min(n - 1, Math.ceil(n / 2 + reach))]];
}

function compareOutputs(reference, folder, rtol, atol) {
  const report = [];
  for (const [name, tensor] of Object.entries(reference)) {
    const mine = readNpy(path.join(folder, name.replace(/[^A-Za-z0-9._-]/g, '_') + '.npy'));
    if (mine.data.length !== tensor.data.length) fail(`${name}: ${mine.data.length} elements, onnxruntime has ${tensor.data.length}`, 1);
    let worst = 0, largest = 0, outside = 0;
    for (let i = 0; i < mine.data.length; ++i) {
      const d = Math.abs(Number(mine.data[i]) - Number(tensor.data[i]));
      worst = Number.isNaN(d) ? Infinity : Math.max(worst, d);
      largest = Math.max(largest, Math.abs(Number(tensor.data[i])));
    }
    const bound = rtol * largest + atol;
    for (let i = 0; i < mine.data.length; ++i) outside += Math.abs(Number(mine.data[i]) - Number(tensor.data[i])) <= bound ? 0 : 1;
    report.push({ name, max_abs: worst, largest, outside, elements: mine.data.length, ok: worst <= bound });
  }
  return { ok: report.every((r) => r.ok), report };
}

const sha256 = (file) => createHash('sha256').update(fs.readFileSync(file)).digest('hex');

async function main() {
  const o = options(process.argv.slice(2));
  if (o.serve) return serve(o);
  const pairs = Number(o.pairs), blockMs = Number(o['block-ms']), rtol = Number(o.rtol);
  if (!(pairs >= 3) || !(blockMs > 0) || !(rtol > 0)) fail('--pairs must be at least 3, --block-ms and --rtol positive');
  if (o.artifact.length === 0) fail('--artifact FILE.so is needed, once or more often');
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'whet-peer-'));
  process.on('exit', () => fs.rmSync(dir, { recursive: true, force: true }));

  const ort = loadOrt(o.ort);
  const session = await openSession(ort, o.model, 1);
  const inputs = makeInputs(session, [...o.input, ...o['ort-input']], dir).filter((s) => !o['ort-input'].includes(s));
  const reference = await session.run(feedsFrom(ort, session, [...inputs, ...o['ort-input']]));
  const correctness = {};
  const forThreads = (n) => {
    const own = o['artifact-on'].filter((s) => s.startsWith(`${n}=`)).map((s) => s.slice(s.indexOf('=') + 1));
    return own.length > 0 ? own : o.artifact;
  };
  for (const artifact of new Set(o.threads.split(',').flatMap(forThreads))) {
    const folder = fs.mkdtempSync(path.join(dir, 'out-'));
    try {
      execFileSync(o.whet, ['run', artifact, ...inputs.flatMap((s) => ['--input', s]), '--output-dir', folder], { stdio: ['ignore', 'ignore', 'inherit'] });
    } catch (e) {
      fail(`${o.whet} run ${artifact} failed (${e.code ?? 'exit ' + e.status})`);
    }
    const result = compareOutputs(reference, folder, rtol, Number(o.atol));
    correctness[artifact] = result.report;
    for (const r of result.report) console.log(`${artifact}: '${r.name}' differs from onnxruntime by at most ${r.max_abs.toExponential(2)} (largest value ${r.largest.toPrecision(4)})${r.ok ? '' : `  ${r.outside} of ${r.elements} elements beyond the tolerance`}`);
    if (!result.ok && o.verify !== undefined && result.report.every((r) => r.outside <= 0.01 * r.elements)) {
      try {
        execFileSync(o.whet, ['verify', artifact, o.model, ...o.verify.split(' ').filter((x) => x), ...inputs.flatMap((s) => ['--input', s])], { stdio: 'ignore' });
        console.log(`${artifact}: ours agrees with the reference in double precision`);
        result.ok = true;
      } catch (e) { /* they are not */ }
    }
    if (!result.ok) fail(`the outputs of '${artifact}' are not those of onnxruntime (--rtol ${rtol}); nothing was timed`, 1);
  }
  await session.release();

  const given = (key, all) => all.flatMap((s) => [key, s]);
  const contenders = [];
  for (const threads of o.threads.split(',')) {
    const name = (base) => (contenders.some((c) => c.name === base) ? `${base} on ${threads}` : base);
    contenders.push(new Contender(name('onnxruntime'), o.core, [process.execPath, new URL(import.meta.url).pathname, '--serve', '1', '--ort', o.ort, '--model', o.model,
      '--threads', threads, ...given('--input', inputs), ...given('--ort-input', o['ort-input'])]));
    for (const [i, a] of forThreads(threads).entries()) contenders.push(new Contender(name(path.basename(o.artifact[i] ?? a)), o.core, [o.whet, 'bench', a, '--threads', threads, ...given('--input', inputs), '--serve-blocks']));
  }
  if (o.tasks === 'yes') contenders.push(new Tasks(contenders[1]));
  for (const c of contenders) await c.calibrate(blockMs);
  for (let round = 0; round < pairs; ++round) {
    for (let k = 0; k < contenders.length; ++k) {
      const c = contenders[(round + k) % contenders.length];
      // A team of onnxruntime's spins for a while after its last run, on a processor that is the next one's.
      if (o.threads !== '1') await new Promise((done) => setTimeout(done, 100));
      await c.run(1);  // not timed: the former one's data lie in the caches
      c.samples.push(await c.run(c.runs));
    }
  }
  for (const c of contenders) c.child.stdin.end();

  const out = {
    what: 'pinned cores, interleaved blocks', threads: o.threads, date: new Date().toISOString(), machine: { cpu: os.cpus()[0]?.model, kernel: os.release(), core: o.core },
    versions: { 'onnxruntime-node': createRequire(path.resolve(o.ort) + '/')('onnxruntime-node/package.json').version, node: process.version },
    model: { path: o.model, sha256: sha256(o.model) }, block_ms: blockMs, pairs, correctness, contenders: [], ratios: [],
  };
  for (const c of contenders) {
    out.contenders.push({ name: c.name, median_ms: quantile(c.samples, 0.5), p10_ms: quantile(c.samples, 0.1), p90_ms: quantile(c.samples, 0.9), runs_per_block: c.runs, samples_ms: c.samples });
    console.log(`${c.name}: median ${quantile(c.samples, 0.5).toFixed(4)} ms, p10 ${quantile(c.samples, 0.1).toFixed(4)}, p90 ${quantile(c.samples, 0.9).toFixed(4)} (${pairs} blocks of ${c.runs} runs)`);
  }
  for (let i = 1; i < contenders.length; ++i) {
    for (let j = 0; j < i; ++j) {
      const ratios = contenders[i].samples.map((v, k) => v / contenders[j].samples[k]);
      const [low, high] = interval(ratios), median = quantile(ratios, 0.5);
      out.ratios.push({ of: contenders[i].name, to: contenders[j].name, median, low, high, samples: ratios });
      console.log(`${contenders[i].name} / ${contenders[j].name}: ${median.toFixed(3)}  (95 % interval ${low.toFixed(3)} to ${high.toFixed(3)})`);
    }
  }
  if (o.json) fs.writeFileSync(o.json, JSON.stringify(out, null, 1) + '\n');
}

await main();
