// Pages of other origins against running servers, with --cors-origin and without: $MOETIER_PROGRAM.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { after, before, test } from 'node:test';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { launch, openPage } from './browser.mjs';

const root = join(import.meta.dirname, '..', '..');
const monitorFile = join(root, 'web', 'dist', 'monitor.html');
const key = 'secret';
const blocked = [/CORS policy/, /ERR_FAILED/, /Failed to load resource/];
let browser, home, stranger, closed, open, fromFile;

/** Somebody else's web server: the monitor's page under another origin. */
async function elsewhere() {
  const server = createServer((request, response) => {
    response.setHeader('Content-Type', 'text/html; charset=utf-8');
    response.end(request.url.startsWith('/monitor') ? readFileSync(monitorFile) : '<!doctype html><title>x</title>');
  });
  await new Promise((done) => server.listen(0, '127.0.0.1', done));
  return { origin: `http://127.0.0.1:${server.address().port}`, stop: () => server.close() };
}

/** `moetier serve` over the demo model with more flags. */
async function serve(...flags) {
  const child = spawn(process.env.MOETIER_PROGRAM, ['serve', '-m', join(root, 'models', 'fairytale-moe-q8_0.gguf'),
    '--port', '0', '--ctx', '512', '--experts', 'stream', '--cache-mb', '20', '--force-cache', ...flags],
    { env: { ...process.env, LLAMA_API_KEY: key }, stdio: ['ignore', 'ignore', 'pipe'] });
  let log = '';
  const url = await new Promise((found, failed) => {
    child.stderr.on('data', (piece) => {
      log += piece;
      const told = /at (http:\S+): .* slot/.exec(log);
      if (told) found(told[1]);
    });
    child.on('exit', () => failed(new Error(`the server did not start: ${log}`)));
  });
  return { url, stop: () => new Promise((done) => { child.removeAllListeners('exit').on('exit', done); child.kill(); }) };
}

before(async () => {
  [browser, home, stranger] = await Promise.all([launch(), elsewhere(), elsewhere()]);
  closed = await serve();
  open = await serve('--cors-origin', home.origin);
  fromFile = await serve('--cors-origin', 'null');
});
after(async () => {
  await Promise.all([browser, closed, open, fromFile].map((one) => one?.close?.() ?? one?.stop()));
  home?.stop();
  stranger?.stop();
});

/** What a page of this origin gets from the server: statuses, or 'blocked'. */
async function statuses(origin, server) {
  const { page, context } = await openPage(browser, {}, blocked);
  await page.goto(origin);
  const got = await page.evaluate(async ({ url, key }) => {
    const headers = { Authorization: `Bearer ${key}` };
    const ask = (path, how = { headers }) => fetch(url + path, how).then(
      async (answer) => ((await answer.text()).length > 0 ? answer.status : 'empty'), () => 'blocked');
    const body = JSON.stringify({ prompt: 'Once', n_predict: 1 });
    return {
      metrics: await ask('/metrics'), slots: await ask('/slots'), props: await ask('/props'),
      models: await ask('/v1/models'),
      completion: await ask('/completion', { method: 'POST', headers: { ...headers, 'Content-Type': 'application/json' }, body }),
      plain: await ask('/completion', { method: 'POST', body }),  // without a preflight
      erase: await ask('/slots/0?action=erase', { method: 'POST', headers }),
    };
  }, { url: server.url, key });
  await context.close();
  return got;
}

const nothing = {
  metrics: 'blocked', slots: 'blocked', props: 'blocked', models: 'blocked', completion: 'blocked', plain: 'blocked', erase: 'blocked',
};

test('without --cors-origin a page of another origin reads nothing', async () => {
  assert.deepEqual(await statuses(home.origin, closed), nothing);
});

test('with it that origin reads what a monitor needs, and no more', async () => {
  assert.deepEqual(await statuses(home.origin, open), { ...nothing, metrics: 200, slots: 200, props: 200 });
});

test('with it another origin reads nothing all the same', async () => {
  assert.deepEqual(await statuses(stranger.origin, open), nothing);
});

async function monitor(address, server, seen) {
  const { page, done } = await openPage(browser, {}, [...blocked, /401/]);
  await page.goto(`${address}?server=${encodeURIComponent(server.url)}`);
  await seen(page);
  await done();
}

const enterKey = async (page) => {
  await page.getByRole('button', { name: 'Enter a key' }).click();
  await page.getByLabel('API key').fill(key);
  await page.keyboard.press('Escape');
  await page.locator('.tile').first().waitFor();
};

test('the monitor from another web server, and from a file', async () => {
  await monitor(`${home.origin}/monitor`, open, enterKey);
  await monitor(`${home.origin}/monitor`, closed, (page) =>
    page.getByRole('alert').getByText(`Start it with --cors-origin ${home.origin}`).waitFor());
  await monitor(pathToFileURL(monitorFile).href, fromFile, enterKey);
  await monitor(pathToFileURL(monitorFile).href, open, (page) =>
    page.getByRole('alert').getByText('Start it with --cors-origin null').waitFor());
});
