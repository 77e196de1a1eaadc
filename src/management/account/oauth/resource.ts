import type { SystemCtx } from '../../../ctx.ts'

/** Whether the requested resource is this API (RFC 8707). */
export function isOwnResource({ config }: SystemCtx, resource: string | undefined): boolean {
  if (resource === undefined) return true
  const isUsable = URL.canParse(resource) && !resource.includes('#')
  return isUsable && new URL(resource).origin === new URL(config.BASE_URL).origin
}
