// Reads server-sent events from a response's body.

/** Takes bytes as they come and gives the data of each whole event. Comments and other fields are passed over. */
export class EventReader {
  private decoder = new TextDecoder();
  private rest = '';
  private data: string[] = [];

  /** The events that these bytes complete. */
  take(bytes: Uint8Array): string[] {
    return this.lines(this.decoder.decode(bytes, { stream: true }));
  }

  private lines(text: string): string[] {
    this.rest += text;
    const out: string[] = [];
    for (;;) {
      const end = /\r\n|\n|\r(?!$)/.exec(this.rest);
      if (!end) return out;
      const line = this.rest.slice(0, end.index);
      this.rest = this.rest.slice(end.index + end[0].length);
      if (line === '') {
        if (this.data.length > 0) out.push(this.data.join('\n'));
        this.data = [];
      } else if (line.startsWith('data:')) {
        this.data.push(line.slice(line.startsWith('data: ') ? 6 : 5));
      }
    }
  }
}

export async function* events(body: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const reader = body.getReader();
  const parser = new EventReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield* parser.take(value);
    }
  } finally {
    reader.cancel().catch(() => undefined);
  }
}
