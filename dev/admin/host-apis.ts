import { EngineUnavailable } from '../../src/engine/engine-errors.ts'
import { type HostApi, hostApi } from '../../src/engine/host/client.ts'
import { LOCAL } from '../../src/engine/host/directory.ts'
import { hostAssociatedData } from '../../src/model/secrets/associated-data.ts'
import { hosts } from '../../src/model/tables/index.ts'
import { unseal } from '../../src/platform/secrets/seal.ts'
import type { ControlDb } from '../seed.ts'
import { refuseEncryptionKey, targetEncryptionKey, targetHost } from '../target.ts'

/** Part of a host's address that only clients of its databases use. */
export const UNUSED_ADDRESS = { databaseHost: '', databasePort: 0 }

/** API clients for all hosts of the installation, by name. */
export async function hostApis(db: ControlDb): Promise<ReadonlyMap<string, HostApi>> {
  const rows = await db.select().from(hosts)
  const local = await targetHost(process.env)
  const encryptionKey = rows.length > 0 ? await targetEncryptionKey(process.env) : ''
  const known = new Map(local ? [[LOCAL, hostApi(local, undefined)]] : [])
  for (const { name, url, sealedKey } of rows) {
    const key = await openHostKey(encryptionKey, { name, sealedKey })
    known.set(name, hostApi({ ...UNUSED_ADDRESS, id: name, url, key }, undefined))
  }
  return known
}

export const openHostKey = (
  encryptionKey: string,
  { name, sealedKey }: Pick<typeof hosts.$inferSelect, 'name' | 'sealedKey'>,
): Promise<string> => unseal(encryptionKey, sealedKey, hostAssociatedData(name)).catch(refuseEncryptionKey)

/** Whether a host answers. A host that refuses the key, or answers something else than a host, throws its error. */
export const doesAnswer = (api: HostApi | undefined): Promise<boolean> =>
  (api?.describe() ?? Promise.resolve(undefined)).then(
    (description) => description !== undefined,
    (error) => {
      if (error instanceof EngineUnavailable) return false
      throw error
    },
  )
