// What is asked for with every message. An empty field leaves the choice to the server.
import { keep, load } from '../lib/keep.ts';
import { Store } from '../lib/store.ts';

export interface Settings {
  system: string;
  temperature: string;
  top_k: string;
  top_p: string;
  min_p: string;
  max_tokens: string;
  seed: string;
  effort: string;
  tools: string;
}

const none: Settings = {
  system: '', temperature: '', top_k: '', top_p: '', min_p: '', max_tokens: '', seed: '', effort: '', tools: '',
};

function read(): Settings {
  const kept = load<Partial<Settings>>('moetier.chat.settings', {}) ?? {};
  const out = { ...none };
  for (const key of Object.keys(none) as (keyof Settings)[]) {
    if (typeof kept[key] === 'string') out[key] = kept[key];
  }
  return out;
}

export const settings = new Store<Settings>(read());

export function change(part: Partial<Settings>): void {
  settings.set({ ...settings.value, ...part });
  keep('moetier.chat.settings', settings.value);
}

export interface NumberField {
  key: 'temperature' | 'top_k' | 'top_p' | 'min_p' | 'max_tokens' | 'seed';
  label: string;
  hint: string;
  min: number;
  max: number;
  whole: boolean;
}

export const numberFields: NumberField[] = [
  { key: 'temperature', label: 'Temperature', hint: '0 always takes the likeliest token', min: 0, max: 100, whole: false },
  { key: 'top_p', label: 'Top p', hint: 'likeliest tokens that make up this share', min: 0, max: 1, whole: false },
  { key: 'min_p', label: 'Min p', hint: 'at least this share of the likeliest', min: 0, max: 1, whole: false },
  { key: 'top_k', label: 'Top k', hint: 'only the k likeliest; 0 is all', min: 0, max: 1e9, whole: true },
  { key: 'max_tokens', label: 'Max tokens', hint: 'an answer ends there', min: 1, max: 1e9, whole: true },
  { key: 'seed', label: 'Seed', hint: 'the same seed, the same answer', min: 0, max: Number.MAX_SAFE_INTEGER, whole: true },
];

/** What is wrong with a field, or nothing. */
export function fieldTrouble(field: NumberField, text: string): string {
  if (text.trim() === '') return '';
  const value = Number(text);
  if (!Number.isFinite(value) || (field.whole && !Number.isSafeInteger(value))) return field.whole ? 'A whole number' : 'A number';
  if (value < field.min) return `At least ${field.min}`;
  return value > field.max ? `At most ${field.max}` : '';
}

export function toolsTrouble(text: string): string {
  if (text.trim() === '') return '';
  try {
    const tools: unknown = JSON.parse(text);
    if (!Array.isArray(tools)) return 'A JSON array of tools';
    for (const tool of tools as { type?: unknown; function?: { name?: unknown } }[]) {
      if (tool?.type !== 'function' || typeof tool.function?.name !== 'string') {
        return 'Each tool is {"type": "function", "function": {"name": …, "parameters": …}}';
      }
    }
    return '';
  } catch (error) {
    return `Not JSON: ${(error as Error).message}`;
  }
}

/** The fields of a request; what is wrong is left out. */
export function requestFields(s: Settings): Record<string, unknown> {
  const out: Record<string, unknown> = {};
  for (const field of numberFields) {
    const text = s[field.key];
    if (text.trim() !== '' && fieldTrouble(field, text) === '') out[field.key] = Number(text);
  }
  if (s.effort) out['reasoning_effort'] = s.effort;
  if (s.tools.trim() !== '' && toolsTrouble(s.tools) === '') {
    const tools = JSON.parse(s.tools) as unknown[];
    if (tools.length > 0) out['tools'] = tools;
  }
  return out;
}
