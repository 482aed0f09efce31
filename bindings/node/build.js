'use strict';
// Compiles addon.c for this Node, with nothing but a C compiler: `npm install` runs it. The headers of Node are beside Node
// itself, or where Debian's libnode-dev puts them; those of the library are installed, or named by HOLDFAST_SOURCE (a clone,
// whose build/ has the library). CC, CPPFLAGS, CFLAGS and LDFLAGS are respected.
const { execFileSync, spawnSync } = require('node:child_process');
const { existsSync } = require('node:fs');
const path = require('node:path');

function fail(text) {
  console.error(`holdfast: ${text}`);
  process.exit(1);
}

function nodeHeaders() {
  const beside = path.join(path.dirname(process.execPath), '../include/node');
  const found = [beside, '/usr/include/node', '/usr/include/nodejs/src'].find((place) => existsSync(path.join(place, 'node_api.h')));
  return found || fail('the headers of Node are not installed; on Debian: apt-get install libnode-dev');
}

function library() {
  const source = process.env.HOLDFAST_SOURCE;
  if (source) {
    const build = process.env.HOLDFAST_BUILD || path.join(source, 'build');
    return [`-I${source}/include`, `-L${build}`, '-lholdfast', `-Wl,-rpath,${path.resolve(build)}`];
  }
  const asked = spawnSync('pkg-config', ['--cflags', '--libs', 'holdfast'], { encoding: 'utf8' });
  if (asked.status !== 0) fail('the library is not installed; "make install" in a clone installs it, or the package libholdfast-dev');
  return wordsOf(asked.stdout);
}

function wordsOf(text = '') {
  return text.split(/\s+/).filter(Boolean);
}

const { CC, CPPFLAGS, CFLAGS, LDFLAGS, HOLDFAST_ADDON } = process.env;
const compiler = CC || 'cc';
const words = ['-std=gnu11', '-O2', '-Wall', '-Wextra', ...wordsOf(CPPFLAGS), ...wordsOf(CFLAGS), '-fPIC', '-shared', `-I${nodeHeaders()}`,
  path.join(__dirname, 'addon.c'), '-o', HOLDFAST_ADDON || path.join(__dirname, 'holdfast.node'), ...wordsOf(LDFLAGS), ...library()];
try {
  execFileSync(compiler, words, { stdio: 'inherit' });
} catch (error) {
  fail(`${compiler} cannot compile addon.c (${error.code || `exit code ${error.status}`})`);
}
