import type { SystemCtx } from '../../../ctx.ts'

/** RFC 8707: whether a token for this API is one for the resource that was named. */
export function isOurs({ config }: SystemCtx, resource: string | undefined): boolean {
  if (resource === undefined) return true
  const isUsable = URL.canParse(resource) && !resource.includes('#')
  return isUsable && new URL(resource).origin === new URL(config.BASE_URL).origin
}
