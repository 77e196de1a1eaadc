import type { Route } from './route.ts'

/** Creates a lookup of the methods that a path accepts; empty for an unknown path. */
export function createMethodTable(routes: readonly Route[]): (path: string) => string[] {
  const table = routes.map(({ method, path }) => ({
    method,
    pattern: new RegExp(`^${path.replaceAll('.', '\\.').replaceAll(/\{\w+\}/g, '[^/]+')}$`),
  }))
  return (path) => {
    const methods = new Set<string>(table.filter(({ pattern }) => pattern.test(path)).map(({ method }) => method))
    // Every GET also answers HEAD.
    if (methods.has('GET')) methods.add('HEAD')
    return methods.size > 0 ? [...methods, 'OPTIONS'] : []
  }
}
