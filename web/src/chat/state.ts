// The conversations, and what is being answered. Everything that a person can do on the page is a function here.
import { apiKeys, forget, keep, keys, load } from '../lib/keep.ts';
import { props, Trouble, type Props, type Server } from '../lib/server.ts';
import { Store } from '../lib/store.ts';
import { requestFields, settings } from './settings.ts';
import { streamAnswer, type Progress } from './stream.ts';
import { add, choose, newConversation, openCalls, path, remove, wireMessages, type Conversation, type Message } from './tree.ts';

const prefix = 'moetier.chat.c.';

export interface Running {
  message: Message;
  controller: AbortController;
  progress: Progress;
}

export interface State {
  conversations: Conversation[];
  current: Conversation;
  running: Map<string, Running>;
  /** By conversation: what is typed and not sent. */
  drafts: Map<string, string>;
  props: Props | null;
  /** Why there is no word of the server. */
  trouble: Trouble | null;
  /** A short message at the edge, with a way back perhaps. */
  toast: { text: string; undo?: () => void } | null;
  /** For screen readers: what just happened. */
  said: string;
  sheet: 'settings' | 'key' | null;
}

function readAll(): Conversation[] {
  const out: Conversation[] = [];
  for (const key of keys(prefix)) {
    const one = load<Conversation | null>(key, null);
    if (one && typeof one.id === 'string' && one.messages && one.chosen) {
      one.title = String(one.title ?? '');
      one.system = String(one.system ?? '');
      out.push(one);
    }
  }
  return out.sort((a, b) => b.updated - a.updated);
}

function start(): State {
  const conversations = readAll();
  const wanted = load<string>('moetier.chat.current', '', () => sessionStorage);
  const current = conversations.find((c) => c.id === wanted) ?? newConversation(settings.value.system);
  return {
    conversations, current, running: new Map(), drafts: new Map(), props: null, trouble: null, toast: null, said: '', sheet: null,
  };
}

export const state = new Store<State>(start());
const kept = apiKeys.of('');
export const server: Server = { url: '', key: kept.key };
export const keyKept = { remember: kept.remembered };

export function setKey(key: string, remember: boolean): void {
  server.key = key;
  keyKept.remember = remember;
  apiKeys.set('', key, remember);
  state.changed();
}

/** Learns what the server serves. */
export async function meet(): Promise<void> {
  try {
    state.value.props = await props(server);
    state.value.trouble = null;
  } catch (error) {
    state.value.trouble = error instanceof Trouble ? error : new Trouble(String(error), 'broken');
  }
  state.changed();
}

let toastTimer = 0;
export function toast(text: string, undo?: () => void): void {
  state.value.toast = { text, undo };
  clearTimeout(toastTimer);
  toastTimer = setTimeout(hideToast, undo ? 8000 : 4000) as unknown as number;
  state.changed();
}
export function hideToast(): void {
  state.value.toast = null;
  state.changed();
}

export function openSheet(sheet: State['sheet']): void {
  state.value.sheet = sheet;
  state.changed();
}

let warned = false;
export function save(conversation: Conversation): void {
  const s = state.value;
  if (Object.keys(conversation.messages).length === 0) return;
  if (!s.conversations.includes(conversation)) s.conversations.unshift(conversation);
  s.conversations.sort((a, b) => b.updated - a.updated);
  const done = keep(prefix + conversation.id, conversation);
  if (!done && !warned) toast("The browser's storage is full or closed: this conversation will be gone with the tab. Export or delete some.");
  warned = !done;
}

export function show(conversation: Conversation): void {
  state.value.current = conversation;
  keep('moetier.chat.current', conversation.id, () => sessionStorage);
  state.changed();
}

export function startNew(): void {
  if (path(state.value.current).length > 0) show(newConversation(settings.value.system));
}

export function rename(conversation: Conversation, title: string): void {
  if (title.trim() === '') return;
  conversation.title = title.trim().slice(0, 200);
  conversation.named = true;
  save(conversation);
  state.changed();
}

export function drop(conversation: Conversation): void {
  const s = state.value;
  stop(conversation);
  s.conversations = s.conversations.filter((c) => c !== conversation);
  forget(prefix + conversation.id);
  if (s.current === conversation) show(newConversation(settings.value.system));
  toast(`Deleted “${conversation.title}”.`, () => {
    save(conversation);
    show(conversation);
    hideToast();
  });
}

export function setSystem(conversation: Conversation, system: string): void {
  conversation.system = system;
  save(conversation);
  state.changed();
}

export function take(conversation: Conversation): void {
  save(conversation);
  show(conversation);
}

// --- answering

export function stop(conversation: Conversation): void {
  state.value.running.get(conversation.id)?.controller.abort();
}

export function send(conversation: Conversation, text: string): void {
  const messages = path(conversation);
  const parent = messages.at(-1)?.id ?? null;
  add(conversation, { parent, role: 'user', content: text });
  void answer(conversation);
}

/** The message in other words, as a sibling; what followed the old one stays with it. */
export function edit(conversation: Conversation, message: Message, text: string): void {
  add(conversation, { parent: message.parent, role: message.role, content: text, callId: message.callId });
  void answer(conversation);
}

/** Another answer to the same. */
export function regenerate(conversation: Conversation, message: Message): void {
  if (state.value.running.has(conversation.id)) return;
  // An answer that never came is no alternative.
  const empty = message.content === '' && !message.reasoning && !message.calls?.length;
  const parent = message.parent;
  if (empty) remove(conversation, message);
  void answer(conversation, parent);
}

export function resume(conversation: Conversation, message: Message): void {
  void answer(conversation, message.parent, message);
}

/** A tool's result; when none is missing the model goes on. */
export function result(conversation: Conversation, callId: string, text: string): void {
  const messages = path(conversation);
  add(conversation, { parent: messages.at(-1)!.id, role: 'tool', content: text, callId });
  save(conversation);
  state.changed();
  if (openCalls(path(conversation)).length === 0) void answer(conversation);
}

export function pick(conversation: Conversation, message: Message): void {
  choose(conversation, message);
  save(conversation);
  state.changed();
}

function ended(message: Message, error: unknown, aborted: boolean): string {
  if (aborted) {
    message.finish = 'stopped';
    return 'Stopped.';
  }
  const trouble = error instanceof Trouble ? error : new Trouble(`Something went wrong on this page: ${String(error)}`, 'broken');
  message.finish = 'error';
  message.error = trouble.message;
  if (trouble.kind === 'key') state.value.sheet = 'key';
  return trouble.message;
}

/** Answers the path up to `parent` (else all of it), in a new message or by going on with `unfinished`. */
async function answer(conversation: Conversation, parent?: string | null, unfinished?: Message): Promise<void> {
  const s = state.value;
  if (s.running.has(conversation.id)) return;
  const before = path(conversation);
  const end = parent === undefined ? before.length : before.findIndex((m) => m.id === parent) + 1;
  const asked = before.slice(0, end);
  const message = unfinished ?? add(conversation, { parent: asked.at(-1)?.id ?? null, role: 'assistant', content: '' });
  delete message.error;
  delete message.finish;
  const running: Running = { message, controller: new AbortController(), progress: { pieces: 0, began: 0 } };
  s.running.set(conversation.id, running);
  s.said = 'Waiting for the answer.';
  save(conversation);
  keep('moetier.chat.current', s.current.id, () => sessionStorage);
  state.changed();
  const body = {
    messages: wireMessages(conversation, unfinished ? [...asked, unfinished] : asked),
    ...requestFields(settings.value),
  };
  let saved = performance.now();
  try {
    await streamAnswer(server, body, message, running.controller.signal, (progress) => {
      running.progress = progress;
      drawSoon();
      if (performance.now() - saved > 2000) {
        save(conversation);
        saved = performance.now();
      }
    });
    s.said = 'The answer is complete.';
    if (s.trouble || !s.props) void meet();
  } catch (error) {
    s.said = ended(message, error, running.controller.signal.aborted);
  }
  s.running.delete(conversation.id);
  conversation.updated = Date.now();
  if (s.conversations.includes(conversation)) save(conversation);
  state.changed();
}

let waiting = false;
/** Pieces may come faster than a screen shows them. */
function drawSoon(): void {
  if (waiting) return;
  waiting = true;
  const draw = () => {
    waiting = false;
    state.changed();
  };
  if (document.hidden) setTimeout(draw, 250);
  else requestAnimationFrame(draw);
}

/** Other tabs write conversations, too. */
export function watchOtherTabs(): void {
  addEventListener('storage', (event) => {
    if (event.key !== null && !event.key.startsWith(prefix)) return;
    const s = state.value;
    const fresh = readAll();
    // What is open or under way here stays as it is here.
    s.conversations = fresh.map((c) => (s.running.has(c.id) ? s.conversations.find((o) => o.id === c.id) : undefined) ?? c);
    s.current = s.conversations.find((c) => c.id === s.current.id) ?? s.current;
    state.changed();
  });
  addEventListener('pagehide', () => {
    for (const [id, running] of state.value.running) {
      const conversation = state.value.conversations.find((c) => c.id === id);
      if (!conversation) continue;
      running.message.finish = 'stopped';
      save(conversation);
      delete running.message.finish;
    }
  });
}
