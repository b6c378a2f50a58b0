// What a browser keeps for a page. Storage may be forbidden, full, or hold nonsense: then a page works without it.

export function load<T>(key: string, otherwise: T, area: () => Storage = () => localStorage): T {
  try {
    const text = area().getItem(key);
    return text === null ? otherwise : (JSON.parse(text) as T);
  } catch {
    return otherwise;
  }
}

/** False if it could not be kept. */
export function keep(key: string, value: unknown, area: () => Storage = () => localStorage): boolean {
  try {
    area().setItem(key, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}

export function forget(key: string, area: () => Storage = () => localStorage): void {
  try {
    area().removeItem(key);
  } catch {
    // It was never kept.
  }
}

export function keys(prefix: string): string[] {
  try {
    return Object.keys(localStorage).filter((key) => key.startsWith(prefix));
  } catch {
    return [];
  }
}

/** API keys, by server: for this tab, or on this device where someone asked for it. */
export const apiKeys = {
  of(server: string): { key: string; remembered: boolean } {
    const kept = load<string>(`moetier.key.${server}`, '');
    return { key: kept || load<string>(`moetier.key.${server}`, '', () => sessionStorage), remembered: kept !== '' };
  },
  set(server: string, key: string, remember: boolean): void {
    forget(`moetier.key.${server}`);
    forget(`moetier.key.${server}`, () => sessionStorage);
    if (key !== '') keep(`moetier.key.${server}`, key, remember ? () => localStorage : () => sessionStorage);
  },
};
