// A conversation is a tree: an answer made again, or a message that was edited, stands beside the one before it, and one of
// each family of siblings is chosen.

export interface ToolCall {
  id: string;
  name: string;
  arguments: string;
}

export interface Stats {
  promptTokens: number;
  cachedTokens: number;
  tokens: number;
  /** Tokens per second; 0 where it is not known. */
  promptSpeed: number;
  speed: number;
  /** Seconds from asking to the first token, as the page saw it. */
  first: number;
}

export interface Message {
  id: string;
  parent: string | null;
  role: 'user' | 'assistant' | 'tool';
  content: string;
  created: number;
  reasoning?: string;
  /** Seconds that the reasoning took. */
  thought?: number;
  calls?: ToolCall[];
  /** Of a tool's result: which call it answers. */
  callId?: string;
  stats?: Stats;
  /** Why an answer ended: stop, length, tool_calls, stopped (by the person), error. */
  finish?: string;
  error?: string;
}

export interface Conversation {
  id: string;
  title: string;
  /** Named by the person: kept as it is. */
  named: boolean;
  created: number;
  updated: number;
  system: string;
  messages: Record<string, Message>;
  /** The chosen child of a message, or of 'root'. */
  chosen: Record<string, string>;
}

export function makeId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(8));
  return Array.from(bytes, (b) => b.toString(16).padStart(2, '0')).join('');
}

export function newConversation(system: string, now = Date.now()): Conversation {
  return { id: makeId(), title: 'New conversation', named: false, created: now, updated: now, system, messages: {}, chosen: {} };
}

function byAge(a: Message, b: Message): number {
  return a.created - b.created || (a.id < b.id ? -1 : 1);
}

/** All messages with this parent, oldest first. */
export function siblings(conversation: Conversation, parent: string | null): Message[] {
  return Object.values(conversation.messages).filter((m) => m.parent === parent).sort(byAge);
}

/** The messages that are shown and sent, first to last. */
export function path(conversation: Conversation): Message[] {
  const families = new Map<string | null, Message[]>();
  for (const message of Object.values(conversation.messages)) {
    const family = families.get(message.parent);
    if (family) family.push(message);
    else families.set(message.parent, [message]);
  }
  const out: Message[] = [];
  let parent: string | null = null;
  for (;;) {
    const family: Message[] = families.get(parent) ?? [];
    families.delete(parent); // so that a circle in a damaged file ends
    const wanted: string | undefined = conversation.chosen[parent ?? 'root'];
    const next: Message | undefined = family.find((m) => m.id === wanted) ?? family.sort(byAge).at(-1);
    if (!next) return out;
    out.push(next);
    parent = next.id;
  }
}

export function add(conversation: Conversation, message: Omit<Message, 'id' | 'created'>, now = Date.now()): Message {
  // A sibling made within the same millisecond must still sort after the ones before it.
  const newest = siblings(conversation, message.parent).at(-1)?.created ?? 0;
  const made: Message = { ...message, id: makeId(), created: Math.max(now, newest + 1) };
  conversation.messages[made.id] = made;
  choose(conversation, made);
  conversation.updated = now;
  if (!conversation.named && made.role === 'user' && made.parent === null) conversation.title = titleOf(made.content);
  return made;
}

export function choose(conversation: Conversation, message: Message): void {
  conversation.chosen[message.parent ?? 'root'] = message.id;
}

export function titleOf(text: string): string {
  const line = text.trim().split('\n')[0]!.replace(/\s+/g, ' ').replace(/^#+ /, '');
  return line.length > 60 ? line.slice(0, 59).trimEnd() + '…' : line || 'New conversation';
}

/** Removes a message with all that follows it. */
export function remove(conversation: Conversation, message: Message): void {
  for (const child of siblings(conversation, message.id)) remove(conversation, child);
  delete conversation.messages[message.id];
  delete conversation.chosen[message.id];
  if (conversation.chosen[message.parent ?? 'root'] === message.id) delete conversation.chosen[message.parent ?? 'root'];
}

/** Calls on the path's end that have no result yet. */
export function openCalls(messages: Message[]): ToolCall[] {
  const answered = new Set<string>();
  for (let i = messages.length - 1; i >= 0; i -= 1) {
    const message = messages[i]!;
    if (message.role === 'tool') answered.add(message.callId ?? '');
    else return message.role === 'assistant' ? (message.calls ?? []).filter((call) => !answered.has(call.id)) : [];
  }
  return [];
}

/** As /v1/chat/completions takes them. */
export function wireMessages(conversation: Conversation, messages: Message[]): Record<string, unknown>[] {
  const out: Record<string, unknown>[] = [];
  if (conversation.system.trim() !== '') out.push({ role: 'system', content: conversation.system });
  for (const m of messages) {
    if (m.role === 'tool') {
      out.push({ role: 'tool', tool_call_id: m.callId, content: m.content });
    } else if (m.role === 'user') {
      out.push({ role: 'user', content: m.content });
    } else if (m.content !== '' || m.reasoning || m.calls?.length) {
      const message: Record<string, unknown> = { role: 'assistant', content: m.content };
      if (m.reasoning) message['reasoning_content'] = m.reasoning;
      if (m.calls?.length) {
        message['tool_calls'] = m.calls.map((c) => ({ id: c.id, type: 'function', function: { name: c.name, arguments: c.arguments } }));
      }
      out.push(message);
    }
  }
  return out;
}

export function asMarkdown(conversation: Conversation): string {
  const parts = [`# ${conversation.title}`];
  if (conversation.system) parts.push('## System', conversation.system);
  for (const m of path(conversation)) {
    parts.push(m.role === 'user' ? '## You' : m.role === 'tool' ? '## Tool result' : '## Answer');
    if (m.reasoning) parts.push(m.reasoning.split('\n').map((l) => `> ${l}`).join('\n'));
    if (m.content) parts.push(m.content);
    for (const call of m.calls ?? []) parts.push(`Call of \`${call.name}\`:\n\n\`\`\`json\n${call.arguments}\n\`\`\``);
  }
  return parts.join('\n\n') + '\n';
}

/** A conversation out of a file; throws in words if it is none. It gets an id of its own. */
export function imported(text: string): Conversation {
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch {
    throw new Error('The file is not JSON.');
  }
  const given = json as Partial<Conversation> | null;
  if (!given || typeof given !== 'object' || typeof given.messages !== 'object' || given.messages === null) {
    throw new Error('The file holds no conversation that this page exported.');
  }
  const out = newConversation(typeof given.system === 'string' ? given.system : '');
  for (const [id, m] of Object.entries(given.messages)) {
    const known = m && ['user', 'assistant', 'tool'].includes(m.role) && typeof m.content === 'string';
    if (!known || (m.parent !== null && typeof m.parent !== 'string')) {
      throw new Error('The file holds a message that this page cannot read.');
    }
    const message: Message = { id, parent: m.parent, role: m.role, content: m.content, created: Number(m.created) || 0 };
    if (typeof m.reasoning === 'string') message.reasoning = m.reasoning;
    if (typeof m.thought === 'number') message.thought = m.thought;
    if (typeof m.callId === 'string') message.callId = m.callId;
    if (typeof m.finish === 'string') message.finish = m.finish;
    if (typeof m.error === 'string') message.error = m.error;
    if (Array.isArray(m.calls)) {
      message.calls = m.calls.map((c) => ({ id: String(c?.id ?? ''), name: String(c?.name ?? ''), arguments: String(c?.arguments ?? '') }));
    }
    out.messages[id] = message;
  }
  for (const [parent, child] of Object.entries(given.chosen ?? {})) {
    if (typeof child === 'string') out.chosen[parent] = child;
  }
  out.title = typeof given.title === 'string' && given.title ? given.title.slice(0, 200) : 'Imported conversation';
  out.named = given.named === true;
  return out;
}
