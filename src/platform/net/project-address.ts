import { createHash } from 'node:crypto'

/**
 * The address of a project's programs: a unique local IPv6 address that no machine has, so that limits and bans by address count
 * each project separately.
 */
export const projectAddress = (ref: string): string =>
  `fd${createHash('sha256').update(ref).digest('hex').slice(0, 30)}`.replace(/.{4}(?=.)/g, '$&:')
