/** Remote modules that the builder replaces with its own code. */
const REPLACEMENTS: readonly [RegExp, string][] = [
  // The usual way to serve before Deno.serve existed.
  [
    /^https:\/\/deno\.land\/std(@[^/]+)?\/http\/server\.ts$/,
    'export const serve = (handler, options) => Deno.serve(options ?? {}, handler).finished;',
  ],
]

export const replacementOf = (url: string): string | undefined =>
  REPLACEMENTS.find(([pattern]) => pattern.test(url))?.[1]
