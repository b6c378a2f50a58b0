// Talks to a server, and puts what can go wrong into words.

/** A failure in words for the person at the page. */
export class Trouble extends Error {
  constructor(
    message: string,
    readonly kind: 'unreachable' | 'blocked' | 'key' | 'busy' | 'refused' | 'broken',
    readonly status = 0,
  ) {
    super(message);
  }
}

export interface Server {
  /** "" is the server that the page came from; otherwise an origin, perhaps with a path, without a slash at its end. */
  url: string;
  key: string;
}

function headers(server: Server, json: boolean): Record<string, string> {
  const out: Record<string, string> = {};
  if (server.key) out['Authorization'] = `Bearer ${server.key}`;
  if (json) out['Content-Type'] = 'application/json';
  return out;
}

/** What an error answer says, in any of the APIs' shapes. */
export function errorText(body: string): string {
  try {
    const json = JSON.parse(body) as { error?: { message?: unknown } | string; message?: unknown };
    const message = typeof json.error === 'string' ? json.error : (json.error?.message ?? json.message);
    if (typeof message === 'string') return message;
  } catch {
    // Not JSON: perhaps a proxy's page. Its status will have to do.
  }
  return '';
}

/** With a capital and a full stop. */
export function sentence(text: string): string {
  return text && text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? '' : '.');
}

export function refusal(status: number, body: string, retryAfter: string | null): Trouble {
  const said = sentence(errorText(body));
  switch (status) {
    case 401:
    case 403:
      return new Trouble(said || 'The server wants an API key.', 'key', status);
    case 429: {
      const wait = retryAfter && /^\d+$/.test(retryAfter) ? ` It says to try again in ${retryAfter} s.` : '';
      return new Trouble((said || 'The server is busy.') + wait, 'busy', status);
    }
    case 404:
      return new Trouble(said || 'The server does not have this; is it Moetier?', 'refused', status);
    default:
      return new Trouble(said || `The server answered with status ${status}.`, status >= 500 ? 'broken' : 'refused', status);
  }
}

/** Is there someone who only does not let this page read? */
async function answersAtAll(url: string): Promise<boolean> {
  try {
    await fetch(`${url}/health`, { mode: 'no-cors', cache: 'no-store', signal: AbortSignal.timeout(4000) });
    return true;
  } catch {
    return false;
  }
}

export function pageOrigin(): string {
  return location.protocol === 'file:' ? 'null' : location.origin;
}

async function unreachable(server: Server): Promise<Trouble> {
  const name = server.url || location.origin;
  if (server.url !== '' && server.url !== location.origin && (await answersAtAll(server.url))) {
    return new Trouble(
      `The server at ${name} is up but lets no page of this origin read it. Start it with --cors-origin ${pageOrigin()}`,
      'blocked',
    );
  }
  return new Trouble(`No server answers at ${name}. Is moetier serve running?`, 'unreachable');
}

/** A request's answer; anything but success is a Trouble. An abort by `signal` stays an abort. */
export async function ask(server: Server, path: string, body?: unknown, signal?: AbortSignal): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(server.url + path, {
      method: body === undefined ? 'GET' : 'POST',
      headers: headers(server, body !== undefined),
      body: body === undefined ? undefined : JSON.stringify(body),
      cache: 'no-store',
      signal,
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw await unreachable(server);
  }
  if (!response.ok) {
    throw refusal(response.status, await response.text().catch(() => ''), response.headers.get('Retry-After'));
  }
  return response;
}

/** What someone typed or linked to, as Server.url; null if it is no address of a server. */
export function serverUrl(text: string): string | null {
  const trimmed = text.trim();
  if (trimmed === '' || /\s/.test(trimmed)) return null;
  try {
    const url = new URL(/^[a-z]+:\/\//i.test(trimmed) ? trimmed : `http://${trimmed}`);
    if (url.protocol !== 'http:' && url.protocol !== 'https:') return null;
    return url.origin + url.pathname.replace(/\/+$/, '');
  } catch {
    return null;
  }
}

export interface Props {
  model_alias?: string;
  model_path?: string;
  build_info?: string;
  total_slots?: number;
  default_generation_settings?: { n_ctx?: number; params?: Record<string, unknown> };
  settings?: Record<string, unknown>;
}

export async function props(server: Server, signal?: AbortSignal): Promise<Props> {
  return (await (await ask(server, '/props', undefined, signal)).json()) as Props;
}
