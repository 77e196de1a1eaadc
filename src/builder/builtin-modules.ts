/** Modules of the web that are answered from here. */
const OURS: readonly [RegExp, string][] = [
  // What functions were served with before the runtime could do it by itself.
  [
    /^https:\/\/deno\.land\/std(@[^/]+)?\/http\/server\.ts$/,
    'export const serve = (handler, options) => Deno.serve(options ?? {}, handler).finished;',
  ],
]

export const oursAt = (url: string): string | undefined => OURS.find(([pattern]) => pattern.test(url))?.[1]
