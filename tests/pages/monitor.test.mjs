// The monitor in a browser, against the stand-in server.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { accessibility, launch, openPage } from './browser.mjs';
import { FakeServer } from './fake-server.mjs';

const file = pathToFileURL(join(import.meta.dirname, '..', '..', 'web', 'dist', 'monitor.html')).href;
let browser;
before(async () => {
  browser = await launch();
});
after(async () => {
  await browser.close();
  for (const server of servers) await server.stop();
});

const servers = new Set();
const busy = async (options) => {
  const server = await new FakeServer({ machine: { busy: true }, ...options }).start();
  servers.add(server);
  return server;
};
const tile = (page, label) => page.locator('.tile').filter({ has: page.getByText(label, { exact: true }) }).locator('.tile-value');
const numberIn = async (locator) => Number((await locator.innerText()).replace(/[^\d.]/g, ''));
const panel = (page, name) => page.getByRole('region', { name, exact: true });

/** Waits until `what` holds. */
async function until(what, why) {
  for (let i = 0; i < 150; i += 1) {
    if (await what()) return;
    await new Promise((r) => setTimeout(r, 50));
  }
  assert.fail(why);
}

/** Fast polls, so that a test need not wait. */
async function quick(context) {
  await context.addInitScript(() => localStorage.setItem('moetier.monitor', '{"interval":0.5,"window":60}'));
}

test('numbers come alive and agree with what the server counts', async () => {
  const server = await busy();
  const { page, context, done } = await openPage(browser);
  await quick(context);
  await page.goto(`${server.url}/monitor`);
  await page.getByText('tales-30b-a3b · experts stream · policy default · io_uring, direct, depth 16 · moetier 0.1.0').waitFor();
  await until(async () => (await numberIn(tile(page, 'Decode'))) > 0, 'no token per second was shown');
  await until(async () => (await numberIn(tile(page, 'Prompt'))) > 0, 'no prompt token per second was shown');
  const hit = await numberIn(tile(page, 'Hit ratio'));
  assert.ok(hit > 20 && hit <= 100, `hit ratio ${hit}`);
  assert.match(await tile(page, 'Read').innerText(), /^[\d.]+ [KMG]iB\/s$/);
  assert.match(await tile(page, 'Requests').innerText(), /^\d of 4$/);
  assert.equal(await tile(page, 'Memory').innerText(), '11.5 GiB');

  // Shares of a token's time are a whole, and the parts of the bar as wide as they say.
  const times = panel(page, 'Where a token’s time goes');
  const shares = (await times.locator('tbody td:nth-child(3)').allInnerTexts()).map((t) => parseFloat(t));
  assert.equal(shares.length, 6);
  assert.ok(Math.abs(shares.reduce((a, b) => a + b) - 100) < 0.5, `shares: ${shares}`);
  const { time } = server.machine;
  const all = Object.values(time).reduce((a, b) => a + b);
  await until(async () => {
    const shown = (await times.locator('tbody td:nth-child(3)').allInnerTexts()).map((t) => parseFloat(t));
    return Math.abs(shown[2] - (100 * time.read) / all) < 15;
  }, 'the share of read waits is not the server\'s');

  const slots = panel(page, 'Slots').locator('tbody tr');
  assert.equal(await slots.count(), 4);
  await until(async () => (await page.locator('.state.generating').count()) > 0, 'no slot generates');
  assert.match(await panel(page, 'Memory').innerText(), /Expert cache\s*8\.79 GiB[\s\S]*Experts in RAM\s*8\.79 GiB of 9\.00 GiB, 1,411 slots/);
  await page.getByText('Totals by layer').click();
  assert.equal(await panel(page, 'Hits by layer').locator('tbody tr').count(), 24);
  await page.getByText('Settings of the server').click();
  assert.match(await page.locator('.page > .more tr', { hasText: 'api-key' }).innerText(), /\(hidden\)/);
  await server.stop();
  await page.getByRole('alert').waitFor();
  await done('monitor').catch((error) => assert.match(String(error), /ERR_CONNECTION_REFUSED/));
});

test('the heat map and the charts are drawn', async () => {
  const server = await busy();
  const { page, context, done } = await openPage(browser);
  await quick(context);
  await page.goto(`${server.url}/monitor`);
  const canvas = panel(page, 'Hits by layer').locator('canvas');
  await canvas.waitFor();
  const colours = () => canvas.evaluate((c) => {
    if (c.width === 0) return 0;  // it is there and not yet laid out
    const { data, width, height } = c.getContext('2d').getImageData(0, 0, c.width, c.height);
    const seen = new Set();
    for (let x = Math.floor(width * 0.99) - 2; x < width - 2; x += 1) {
      for (let y = 0; y < height; y += 3) seen.add(`${data[(y * width + x) * 4]},${data[(y * width + x) * 4 + 1]}`);
    }
    return seen.size;
  });
  await until(async () => (await colours()) > 6, 'the heat map has no colours by layer');
  // The map may still move under the pointer as panels around it come.
  let away = 4;
  await until(async () => {
    const box = await canvas.boundingBox();
    await canvas.hover({ position: { x: box.width - (away = 9 - away), y: 20 } });
    return (await page.getByText(/^Layer \d+: [\d.]+ % of [\d,]+ picked, .* read$/).count()) > 0;
  }, 'the heat map tells nothing of a layer');
  for (const name of ['Decode', 'Hit ratio', 'Read rate', 'Where a token’s time goes']) {
    const inked = await panel(page, name).locator('.u-over').evaluate((over) => {
      const c = over.parentElement.querySelector('canvas');
      return c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some((v, i) => i % 4 === 3 && v > 0);
    });
    assert.ok(inked, `the chart of ${name} is empty`);
  }
  await done('monitor-charts');
});

test('it pauses, resumes, and notices a restart', async () => {
  const server = await busy();
  const { page, context, done } = await openPage(browser);
  await quick(context);
  await page.goto(`${server.url}/monitor`);
  await until(async () => (await numberIn(tile(page, 'Decode'))) > 0, 'nothing came');
  await page.getByRole('button', { name: 'Pause' }).click();
  const before = await page.locator('.tiles').innerText();
  await new Promise((r) => setTimeout(r, 1300));
  assert.equal(await page.locator('.tiles').innerText(), before);
  server.machine.restart();
  await page.getByRole('button', { name: 'Resume' }).click();
  await page.getByText('The server was started anew while this page watched').waitFor();
  await until(async () => (await numberIn(tile(page, 'Decode'))) > 0, 'nothing came after the restart');
  assert.ok((await numberIn(tile(page, 'Decode'))) < 100_000, 'a counter that fell is no negative or huge rate');
  await done();
});

test('from a file with ?server=, and what to do where that is not allowed', async () => {
  const server = await busy({ cors: 'null' });
  const { page, context, done } = await openPage(browser);
  await quick(context);
  await page.goto(`${file}?server=${server.url}`);
  await until(async () => (await page.locator('.tile').count()) > 0 && (await numberIn(tile(page, 'Decode'))) > 0, 'nothing came across origins');
  await done('monitor-file');

  const closed = await busy();
  const second = await openPage(browser, {}, [/CORS policy/, /ERR_FAILED/]);
  await second.page.goto(`${file}?server=${closed.url}`);
  await second.page.getByRole('alert').getByText(`The server at ${closed.url} is up but lets no page of this origin read it. Start it with --cors-origin null`).waitFor();
  await second.done('monitor-blocked');
});

test('a file without a server asks for one; a nonsense address is named', async () => {
  const server = await busy({ cors: 'null' });
  const { page, done } = await openPage(browser);
  await page.goto(file);
  const field = page.getByLabel('Server', { exact: true });
  await field.fill('no address at all');
  await page.getByRole('button', { name: 'Watch' }).click();
  await page.getByText('That is no address of a server').waitFor();
  await field.fill(server.url);
  await page.getByRole('button', { name: 'Watch' }).click();
  await page.locator('.tile').first().waitFor();
  assert.ok(page.url().includes(encodeURIComponent(server.url)), 'the address can be kept as a bookmark');
  await page.goto(`${file}?server=javascript:alert(1)`);
  await page.getByRole('alert').getByText('is no address of a server').waitFor();
  await done();
});

test('with a key, across origins', async () => {
  const server = await busy({ cors: 'null', key: 'secret' });
  const { page, done } = await openPage(browser, {}, [/401/]);
  await page.goto(`${file}?server=${server.url}`);
  await page.getByRole('alert').getByText('An API key is needed').waitFor();
  await page.getByRole('button', { name: 'Enter a key' }).click();
  await page.getByLabel('API key').fill('secret');
  await page.keyboard.press('Escape');
  await page.locator('.tile').first().waitFor();
  await done();
});

test('a server without a cache, or without experts, is shown as far as it goes', async () => {
  const server = await busy({ machine: { busy: true, cache: false, mode: 'mmap' } });
  const { page, context, done } = await openPage(browser);
  await quick(context);
  await page.goto(`${server.url}/monitor`);
  await panel(page, 'Reads by layer').waitFor();
  await until(async () => (await numberIn(tile(page, 'Decode'))) > 0, 'nothing came');
  // As llama-server has it: a few series, slots with other fields.
  const plain = 'llamacpp:prompt_tokens_total 10\nllamacpp:tokens_predicted_total 5\nllamacpp:requests_processing 0\nllamacpp:requests_deferred 0\n';
  await page.route('**/metrics', (route) => route.fulfill({ body: plain }));
  await page.route('**/slots', (route) => route.fulfill({ json: [{ id: 0, is_processing: false, n_ctx: 512, next_token: [{ n_decoded: 0 }] }] }));
  await page.reload();
  await page.getByText('This server counts no hits').waitFor();
  await page.getByText('This server tells nothing of its memory.').waitFor();
  await done();
});

for (const [name, options] of [
  ['light', { colorScheme: 'light' }],
  ['dark', { colorScheme: 'dark' }],
  ['phone', { viewport: { width: 390, height: 800 }, hasTouch: true, isMobile: true }],
]) {
  test(`accessible and whole: ${name}`, async () => {
    const server = await busy();
    const { page, context, done } = await openPage(browser, options);
    await quick(context);
    await page.goto(`${server.url}/monitor`);
    await until(async () => (await page.locator('.tile').count()) > 0 && (await numberIn(tile(page, 'Decode'))) > 0, 'nothing came');
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), 'nothing sticks out at the side');
    assert.deepEqual(await accessibility(page), []);
    await page.getByRole('button', { name: 'Settings', exact: true }).click();
    assert.deepEqual(await accessibility(page), []);
    await page.getByRole('radio', { name: 'Dark' }).check();
    assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), 'dark');
    await page.getByRole('radio', { name: 'As the system' }).check();
    await page.keyboard.press('Escape');
    await done(`monitor-${name}`);
  });
}
