// A tuning log of schema 1 as that release wrote it: SQL text, with the checks of its rows. Frozen:
// it proves that old logs migrate and that the canonical form behind `crc` has not changed.
#pragma once

namespace whet::db {

inline constexpr const char* kSchema1Sample = R"sql(
PRAGMA application_id = 1464354132;
PRAGMA user_version = 1;
CREATE TABLE meta(
  name TEXT PRIMARY KEY NOT NULL,
  value TEXT NOT NULL,
  crc INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE workloads(
  fingerprint TEXT PRIMARY KEY NOT NULL,
  text TEXT NOT NULL,
  op_summary TEXT NOT NULL,
  crc INTEGER NOT NULL
) STRICT;
CREATE TABLE targets(
  fingerprint TEXT PRIMARY KEY NOT NULL,
  text TEXT NOT NULL,
  crc INTEGER NOT NULL
) STRICT;
CREATE TABLE devices(
  fingerprint TEXT PRIMARY KEY NOT NULL,
  device_id TEXT NOT NULL,
  device_key TEXT NOT NULL,
  feature_set TEXT NOT NULL,
  identity TEXT NOT NULL,
  crc INTEGER NOT NULL
) STRICT;
CREATE TABLE jobs(
  job_id TEXT PRIMARY KEY NOT NULL,
  state TEXT NOT NULL,
  spec TEXT NOT NULL,
  error TEXT NOT NULL,
  created_ms INTEGER NOT NULL,
  updated_ms INTEGER NOT NULL,
  crc INTEGER NOT NULL
) STRICT;
CREATE TABLE trials(
  seq INTEGER PRIMARY KEY NOT NULL,
  task TEXT NOT NULL,
  workload TEXT NOT NULL REFERENCES workloads(fingerprint),
  target TEXT NOT NULL REFERENCES targets(fingerprint),
  threads INTEGER NOT NULL,
  cache_mode TEXT NOT NULL,
  generation TEXT NOT NULL,
  job_id TEXT NOT NULL REFERENCES jobs(job_id),
  trial INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  incarnation TEXT NOT NULL,
  lease_epoch INTEGER NOT NULL,
  worker_id TEXT NOT NULL,
  boot_id TEXT NOT NULL,
  device_id TEXT NOT NULL,
  status TEXT NOT NULL,
  device TEXT REFERENCES devices(fingerprint),
  trace TEXT NOT NULL,
  trace_fingerprint TEXT NOT NULL,
  initial_program TEXT NOT NULL,
  codegen_version INTEGER NOT NULL,
  compiler_version TEXT NOT NULL,
  object_hash TEXT NOT NULL,
  is_default INTEGER NOT NULL,
  failure TEXT NOT NULL,
  message TEXT NOT NULL,
  samples_ns BLOB NOT NULL,
  median_ns REAL NOT NULL,
  min_ns REAL NOT NULL,
  contended INTEGER NOT NULL,
  baseline_ratio REAL,
  input_seed INTEGER NOT NULL,
  sandbox_bits INTEGER NOT NULL,
  exec_class TEXT NOT NULL,
  device_state TEXT NOT NULL,
  created_ms INTEGER NOT NULL,
  crc INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX trials_ids ON trials(
  generation, job_id, task, trial, attempt, incarnation, device_id, lease_epoch);
CREATE INDEX trials_workload ON trials(workload, target, threads, cache_mode);
INSERT INTO meta VALUES('created_ms','1796022569203',169702423);
INSERT INTO meta VALUES('generation','c6476c176df7fecceda008e3321a60c0',1146956064);
INSERT INTO meta VALUES('log_id','187132884a7b76f753ab2d66295f4b3a',2392270257);
INSERT INTO meta VALUES('written_by','whet',993206075);
INSERT INTO workloads VALUES('36a3c43f22b28e8644851c839a87a66a',
  replace('whet-workload 1\nconv2d v1 f32[1,16,32,32] f32[16,16,1,1]\n','\n',char(10)),
  'conv2d 1x16x32x32',3966051871);
INSERT INTO targets VALUES('7399033d834733c3dbbf4dce65381b5f','cpu -mattr=+avx2',2422791690);
INSERT INTO devices VALUES('a1b9e86d16d1b4b02c07ee3ee5ebde80','board-1','local','cpu -mattr=+avx2'
  ,'{"triple":"x86_64","cores":2}',2861459171);
INSERT INTO jobs VALUES('job-1','running','{}','',1000,1000,3204146315);
INSERT INTO trials VALUES(1,'e2f767e1a8213d10428e8f271a405e62','36a3c43f22b28e8644851c839a87a66a',
  '7399033d834733c3dbbf4dce65381b5f',2,'warm','c6476c176df7fecceda008e3321a60c0','job-1',1,1,
  'incarnation-1',10,'worker-1','boot-1','board-1','counted','a1b9e86d16d1b4b02c07ee3ee5ebde80',
  replace('whet-trace 1\nsplit i 1\n','\n',char(10)),'700ad2d7e0e6fdb99341962cefc17a54',
  '5f54a3e660ab0cd23500e6b956d74891',7,'whet 0.1.0','',1,'ok','',
  x'0000000000448f4000000000004a8f400000000000309140',1001.25,1000.5,0,1.0,-81985529216486896,0,
  'native','{"governor":"performance"}',1001,1212426568);
INSERT INTO trials VALUES(2,'e2f767e1a8213d10428e8f271a405e62','36a3c43f22b28e8644851c839a87a66a',
  '7399033d834733c3dbbf4dce65381b5f',2,'warm','c6476c176df7fecceda008e3321a60c0','job-1',2,1,
  'incarnation-1',10,'worker-1','boot-1','board-1','counted','a1b9e86d16d1b4b02c07ee3ee5ebde80',
  replace('whet-trace 1\nsplit i 2\n','\n',char(10)),'df20a94b3d223b1473643ea5638981a3',
  '5f54a3e660ab0cd23500e6b956d74891',7,'whet 0.1.0','',0,'ok','',
  x'0000000000447f4000000000004a7f400000000000308140',500.625,500.25,0,0.5,-81985529216486896,0,
  'native','{"governor":"performance"}',1002,3428105212);
INSERT INTO trials VALUES(3,'e2f767e1a8213d10428e8f271a405e62','36a3c43f22b28e8644851c839a87a66a',
  '7399033d834733c3dbbf4dce65381b5f',2,'warm','c6476c176df7fecceda008e3321a60c0','job-1',3,1,
  'incarnation-1',10,'worker-1','boot-1','','counted',NULL,replace('whet-trace 1\nsplit i 3\n',
  '\n',char(10)),'401a1ed7468a88aa48ac8bf038b3e130','5f54a3e660ab0cd23500e6b956d74891',7,
  'whet 0.1.0','',0,'build_error','no such register',x'',0.0,0.0,0,NULL,-81985529216486896,0,
  'native','{"governor":"performance"}',1003,354039105);
INSERT INTO trials VALUES(4,'e2f767e1a8213d10428e8f271a405e62','36a3c43f22b28e8644851c839a87a66a',
  '7399033d834733c3dbbf4dce65381b5f',2,'warm','c6476c176df7fecceda008e3321a60c0','job-1',4,1,
  'incarnation-1',10,'worker-1','boot-1','board-1','counted','a1b9e86d16d1b4b02c07ee3ee5ebde80',
  replace('whet-trace 1\nsplit i 4\n','\n',char(10)),'b1ce0ca51188b5664554d8f44a7e64b0',
  '5f54a3e660ab0cd23500e6b956d74891',7,'whet 0.1.0','',0,'ok','',
  x'000000000073874000000000807787400000000000c88940',750.9375,750.375,0,0.75,-81985529216486896,0
  ,'native','{"governor":"performance"}',1004,4177860934);
)sql";

}  // namespace whet::db
