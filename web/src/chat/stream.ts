// One streamed answer: what the server sends, put into a message.
import { ask, errorText, sentence, Trouble, type Server } from '../lib/server.ts';
import { events } from '../lib/sse.ts';
import type { Message } from './tree.ts';

interface Delta {
  content?: string | null;
  reasoning_content?: string | null;
  tool_calls?: { index?: number; id?: string; function?: { name?: string; arguments?: string } }[];
}
interface Chunk {
  choices?: { delta?: Delta; finish_reason?: string | null }[];
  usage?: { prompt_tokens: number; completion_tokens: number; prompt_tokens_details?: { cached_tokens?: number } } | null;
  timings?: { prompt_n: number; cache_n: number; predicted_n: number; prompt_per_second: number; predicted_per_second: number };
  prompt_progress?: { total: number; cache: number; processed: number };
  error?: { message?: string };
}

/** How an answer comes along, for the person who waits. */
export interface Progress {
  /** Of the prompt, computed or kept from before; undefined once the answer has begun. */
  prompt?: { done: number; total: number };
  /** Pieces of the answer so far: about one per token. */
  pieces: number;
  /** performance.now() of the first of them; 0 before. */
  began: number;
}

/** Puts chunks into a message as they come. */
export class AnswerBuilder {
  readonly progress: Progress = { pieces: 0, began: 0 };
  ended = false;
  private thinkingSince = 0;

  constructor(
    private readonly message: Message,
    private readonly asked: number,
    private readonly now: () => number = () => performance.now(),
  ) {}

  /** Throws a Trouble where the server reports one. */
  take(data: string): void {
    if (data === '[DONE]') {
      this.ended = true;
      return;
    }
    let chunk: Chunk;
    try {
      chunk = JSON.parse(data) as Chunk;
    } catch {
      throw new Trouble('The server sent something that is not JSON.', 'broken');
    }
    if (chunk.error) throw new Trouble(sentence(errorText(data)) || 'The server reported an error.', 'broken');
    if (chunk.prompt_progress) {
      this.progress.prompt = { done: chunk.prompt_progress.processed, total: chunk.prompt_progress.total };
    }
    for (const choice of chunk.choices ?? []) {
      if (choice.delta) this.delta(choice.delta);
      if (choice.finish_reason) this.message.finish = choice.finish_reason;
    }
    this.count(chunk);
  }

  private delta(delta: Delta): void {
    const said = delta.content || delta.reasoning_content || delta.tool_calls?.length;
    if (!said) return;
    if (this.progress.began === 0) this.progress.began = this.now();
    this.progress.pieces += 1;
    this.progress.prompt = undefined;
    if (delta.reasoning_content) {
      if (this.thinkingSince === 0) this.thinkingSince = this.now();
      this.message.reasoning = (this.message.reasoning ?? '') + delta.reasoning_content;
    }
    if (delta.content || delta.tool_calls?.length) this.stopThinking();
    if (delta.content) this.message.content += delta.content;
    for (const part of delta.tool_calls ?? []) {
      const calls = (this.message.calls ??= []);
      const at = part.index ?? 0;
      while (calls.length <= at) calls.push({ id: '', name: '', arguments: '' });
      const call = calls[at]!;
      if (part.id) call.id = part.id;
      if (part.function?.name) call.name += part.function.name;
      if (part.function?.arguments) call.arguments += part.function.arguments;
    }
  }

  /** Reasoning is over: by an answer, or by the end. */
  stopThinking(): void {
    if (this.thinkingSince === 0) return;
    this.message.thought = (this.message.thought ?? 0) + (this.now() - this.thinkingSince) / 1000;
    this.thinkingSince = 0;
  }

  private count(chunk: Chunk): void {
    const { timings, usage } = chunk;
    if (!timings && !usage) return;
    const stats = (this.message.stats ??= { promptTokens: 0, cachedTokens: 0, tokens: 0, promptSpeed: 0, speed: 0, first: 0 });
    stats.first = this.progress.began === 0 ? 0 : (this.progress.began - this.asked) / 1000;
    if (timings) {
      stats.promptTokens = timings.prompt_n + timings.cache_n;
      stats.cachedTokens = timings.cache_n;
      stats.tokens = timings.predicted_n;
      stats.promptSpeed = timings.prompt_per_second;
      stats.speed = timings.predicted_per_second;
    }
    if (usage) {
      stats.promptTokens = usage.prompt_tokens;
      stats.cachedTokens = usage.prompt_tokens_details?.cached_tokens ?? stats.cachedTokens;
      stats.tokens = usage.completion_tokens;
    }
  }
}

/** Streams an answer into `message`; `changed` is told of every piece. Throws a Trouble, or the abort of `signal`. */
export async function streamAnswer(
  server: Server,
  body: Record<string, unknown>,
  message: Message,
  signal: AbortSignal,
  changed: (progress: Progress) => void,
): Promise<void> {
  const builder = new AnswerBuilder(message, performance.now());
  const asked = { ...body, stream: true, stream_options: { include_usage: true }, return_progress: true };
  const response = await ask(server, '/v1/chat/completions', asked, signal);
  try {
    if (!response.body) throw new Trouble('The server sent no answer.', 'broken');
    for await (const data of events(response.body)) {
      builder.take(data);
      changed(builder.progress);
      if (builder.ended) return;
    }
  } catch (error) {
    if (signal.aborted || error instanceof Trouble) throw error;
    throw new Trouble('The connection was lost before the answer was whole.', 'broken');
  } finally {
    builder.stopThinking();
  }
  if (signal.aborted) throw new DOMException('stopped', 'AbortError');
  throw new Trouble('The connection ended before the answer was whole.', 'broken');
}
