// Asks a server again and again, and keeps what it said.
import { apiKeys, keep, load } from '../lib/keep.ts';
import { parseMetrics } from '../lib/prometheus.ts';
import { ask, props, serverUrl, Trouble, type Props, type Server } from '../lib/server.ts';
import { Store } from '../lib/store.ts';
import { History } from './history.ts';
import { readSlots } from './sample.ts';

interface Options {
  interval: number; // seconds
  window: number; // seconds
}

export interface State extends Options {
  /** null: nobody said which server. */
  server: Server | null;
  remember: boolean;
  props: Props | null;
  history: History;
  trouble: Trouble | null;
  paused: boolean;
  restarts: number;
  sheet: boolean;
}

/** The server: of `?server=`, else the one that the page came from. */
function given(): { url: string | null; wrong: string } {
  const text = new URLSearchParams(location.search).get('server');
  if (text !== null && text.trim() !== '') {
    const url = serverUrl(text);
    return { url, wrong: url === null ? `“${text}” is no address of a server: try ?server=http://127.0.0.1:8080` : '' };
  }
  return { url: location.protocol === 'file:' ? null : '', wrong: '' };
}

function start(): State {
  const kept = load<Partial<Options>>('moetier.monitor', {}) ?? {};
  const { url, wrong } = given();
  const key = apiKeys.of(url ?? '');
  return {
    server: url === null ? null : { url, key: key.key },
    remember: key.remembered,
    props: null,
    history: new History(),
    trouble: wrong ? new Trouble(wrong, 'refused') : null,
    paused: false,
    restarts: 0,
    sheet: false,
    interval: [0.5, 1, 2, 5].includes(kept.interval ?? 0) ? kept.interval! : 1,
    window: [60, 300, 900, 3600].includes(kept.window ?? 0) ? kept.window! : 300,
  };
}

export const state = new Store<State>(start());

export function setOptions(part: Partial<Options>): void {
  Object.assign(state.value, part);
  keep('moetier.monitor', { interval: state.value.interval, window: state.value.window });
  state.changed();
}

export function setKey(key: string, remember: boolean): void {
  const s = state.value;
  if (!s.server) return;
  s.server.key = key;
  s.remember = remember;
  apiKeys.set(s.server.url, key, remember);
  state.changed();
}

export function watchServer(text: string): string {
  const url = serverUrl(text);
  if (url === null) return 'That is no address of a server; one looks like http://127.0.0.1:8080';
  const here = new URL(location.href);
  here.searchParams.set('server', url);
  history.replaceState(null, '', here);
  const key = apiKeys.of(url);
  Object.assign(state.value, { server: { url, key: key.key }, remember: key.remembered, props: null, trouble: null });
  state.value.history.clear();
  state.changed();
  pollNow();
  return '';
}

export function togglePause(): void {
  state.value.paused = !state.value.paused;
  state.changed();
  if (!state.value.paused) pollNow();
}

export function openSheet(open: boolean): void {
  state.value.sheet = open;
  state.changed();
  if (!open) pollNow();
}

let timer = 0;
let asking: AbortController | null = null;

export function pollNow(): void {
  clearTimeout(timer);
  asking?.abort();
  void poll();
}

async function poll(): Promise<void> {
  const s = state.value;
  if (s.paused || !s.server) return;
  const mine = new AbortController();
  asking = mine;
  const began = performance.now();
  const server = s.server;
  const signal = AbortSignal.any([mine.signal, AbortSignal.timeout(15_000)]);
  try {
    if (!s.props) s.props = await props(server, signal);
    // One after the other: a request that ends in between is counted late rather than twice.
    const text = await (await ask(server, '/metrics', undefined, signal)).text();
    const time = Date.now() / 1000;
    const slots = readSlots(await (await ask(server, '/slots', undefined, signal)).json());
    if (mine.signal.aborted) return;
    if (s.history.add(parseMetrics(text), slots, time, Math.max(4 * s.interval, 10))) {
      s.restarts += 1;
      s.props = null;
    }
    s.trouble = null;
  } catch (error) {
    if (mine.signal.aborted) return;
    s.trouble = error instanceof Trouble ? error : new Trouble('The server did not answer in time, or not in the formats of Moetier.', 'unreachable');
    // It may come back as another one.
    if (s.trouble.kind === 'unreachable') s.props = null;
  }
  state.changed();
  const wait = s.trouble ? Math.max(s.interval, 3) : s.interval;
  timer = setTimeout(() => void poll(), Math.max(wait * 1000 - (performance.now() - began), 50)) as unknown as number;
}
