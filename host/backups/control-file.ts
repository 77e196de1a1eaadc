import { open } from 'node:fs/promises'
import { join } from 'node:path'
import { InstanceUnavailable } from '../instances/types.ts'

/** `ControlFileData` of Postgres 12 to 18: the state at byte 16, the last checkpoint at byte 32, both in the machine's order. */
const [STATE_AT, CHECKPOINT_AT, BYTES] = [16, 32, 40]
const SHUT_DOWN = 1
const LOW_BITS = 32n

/** The last checkpoint of a server that was stopped in order: it has written nothing after it. */
export async function stoppedLsn(data: string): Promise<string> {
  const file = await open(join(data, 'global', 'pg_control'))
  try {
    const { buffer } = await file.read(Buffer.alloc(BYTES), 0, BYTES, 0)
    if (buffer.readUInt32LE(STATE_AT) !== SHUT_DOWN)
      throw new InstanceUnavailable('The server was not stopped in order')
    const lsn = buffer.readBigUInt64LE(CHECKPOINT_AT)
    const parts = [lsn >> LOW_BITS, BigInt.asUintN(Number(LOW_BITS), lsn)]
    return parts.map((part) => part.toString(16).toUpperCase()).join('/')
  } finally {
    await file.close()
  }
}
