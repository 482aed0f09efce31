'use strict';
// What the tests of the Node package share. HOLDFAST_ADDON names the built addon. Tests are functions with names that say
// what they show; they run one after the other, each with a fresh folder, and speak TAP. HOLDFAST_TEST_ONLY, which tests/run
// sets, is the whole name of the one test to run.
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');

const ROOT = path.resolve(__dirname, '../..');
const PACKAGE = path.join(ROOT, 'bindings/node');
const LIMIT_MS = 150000;
const PATIENCE_MS = 40000; // for things that happen at once on a machine that is not busy

const tests = [];
let folder = null;

function test(name, run) { tests.push({ name, run }); }

/** The URL of a store that other processes see: a fresh file, or what HOLDFAST_TEST_URL names. */
function newUrl() { return process.env.HOLDFAST_TEST_URL ?? `sqlite:${folder}/locks.db`; }

function pathOf(name) { return path.join(folder, name); }

function sleep(ms) { return new Promise((resolve) => { setTimeout(resolve, ms); }); }

/** Fails if it takes longer. */
function within(promise, ms = PATIENCE_MS, what = 'it') {
  let timer;
  const late = new Promise((_, reject) => { timer = setTimeout(() => reject(new Error(`${what} did not come within ${ms} ms`)), ms); });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

async function main() {
  const words = process.argv.includes('-t') ? process.argv[process.argv.indexOf('-t') + 1] : '';
  const only = process.env.HOLDFAST_TEST_ONLY;
  const chosen = tests.filter(({ name }) => name.includes(words) && (only ?? name) === name);
  let failed = 0;
  for (const [index, { name, run }] of chosen.entries()) {
    folder = fs.mkdtempSync(path.join(os.tmpdir(), 'holdfast-node-'));
    try {
      await within(Promise.resolve().then(run), LIMIT_MS, name);
      console.log(`ok ${index + 1} - ${name}`);
    } catch (error) {
      failed += 1;
      console.log(`not ok ${index + 1} - ${name}`);
      console.log(String(error.stack).replace(/^/gm, '# '));
    }
    fs.rmSync(folder, { recursive: true, force: true });
  }
  console.log(`1..${chosen.length}`);
  process.exit(failed ? 1 : 0);
}

module.exports = { ROOT, PACKAGE, PATIENCE_MS, test, main, newUrl, pathOf, sleep, within };
