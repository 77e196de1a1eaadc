import { type HostApi, hostApi } from '../../src/engine/host/client.ts'
import { LOCAL } from '../../src/engine/host/directory.ts'
import { hostAssociatedData } from '../../src/model/secrets/associated-data.ts'
import { hosts } from '../../src/model/tables/index.ts'
import { unseal } from '../../src/platform/secrets/seal.ts'
import type { ControlDb } from '../seed.ts'
import { StartError } from '../start-error.ts'
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

/** Finds a host by name; throws if it is not known on this machine. */
export function requireHost(apis: ReadonlyMap<string, HostApi>, name: string): HostApi {
  const api = apis.get(name)
  if (api) return api
  throw new StartError(name === LOCAL ? unknownHere(name) : `no host is called "${name}"`)
}

export const unknownHere = (name: string): string =>
  `the host ${name} is not known here: set HOST_URL and HOST_KEY to those of the Worker`
