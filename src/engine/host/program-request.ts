import { hostToken } from '../../platform/secrets/host-token.ts'

/** Code of the message in the place of a protocol version, beside those of Postgres for TLS and cancel requests. */
export const PROGRAM_REQUEST = 80_877_120

/**
 * The first message of a program's connection to the gateway. Programs of all projects may have one address, so it names the
 * project: limits and bans then count the programs of each project separately, and these reach no other project.
 */
export function programRequest(key: string, ref: string): Uint8Array {
  const body = Buffer.from(`${ref}\0${hostToken(key, { purpose: 'program', instance: ref })}\0`)
  const head = Buffer.alloc(8)
  head.writeInt32BE(head.length + body.length, 0)
  head.writeInt32BE(PROGRAM_REQUEST, 4)
  return Buffer.concat([head, body])
}
