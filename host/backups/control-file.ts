import { join } from 'node:path'
import { openOwned } from '../instances/files.ts'
import { InstanceUnavailable } from '../instances/types.ts'

/** Layout of `ControlFileData` in Postgres 12 to 18: state at byte 16, last checkpoint at byte 32, little-endian. */
const [STATE_AT, CHECKPOINT_AT, BYTES] = [16, 32, 40]
const STATE_SHUT_DOWN = 1
const LOW_BITS = 32n

/** The last checkpoint of a cleanly stopped server, which has written nothing after it. */
export async function readStoppedLsn(data: string): Promise<string> {
  const file = await openOwned(join(data, 'global', 'pg_control'))
  try {
    const { buffer } = await file.read(Buffer.alloc(BYTES), 0, BYTES, 0)
    if (buffer.readUInt32LE(STATE_AT) !== STATE_SHUT_DOWN)
      throw new InstanceUnavailable('The server was not stopped cleanly')
    const lsn = buffer.readBigUInt64LE(CHECKPOINT_AT)
    const parts = [lsn >> LOW_BITS, BigInt.asUintN(Number(LOW_BITS), lsn)]
    return parts.map((part) => part.toString(16).toUpperCase()).join('/')
  } finally {
    await file.close()
  }
}
