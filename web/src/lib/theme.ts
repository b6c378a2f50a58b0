// Light, dark, or as the system has it; and a theme's colours for a canvas.
import { Store } from './store.ts';
import { keep, load } from './keep.ts';

export type Theme = 'auto' | 'light' | 'dark';
export const theme = new Store<Theme>('auto');

export function setTheme(value: Theme): void {
  if (value === 'auto') document.documentElement.removeAttribute('data-theme');
  else document.documentElement.setAttribute('data-theme', value);
  keep('moetier.theme', value);
  theme.set(value);
}

export function startTheme(): void {
  const kept = load<Theme>('moetier.theme', 'auto');
  setTheme(kept === 'light' || kept === 'dark' ? kept : 'auto');
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => theme.changed());
}

let probe: HTMLElement | null = null;

/** What a custom property is in the theme of now, as "rgb(r, g, b)". */
export function colour(property: string): string {
  if (!probe) {
    probe = document.createElement('span');
    probe.hidden = true;
    document.body.append(probe);
  }
  probe.style.color = `var(${property})`;
  return getComputedStyle(probe).color;
}
