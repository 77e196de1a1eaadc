import type pg from 'pg'
import { projectAssociatedData } from '../src/model/secrets/associated-data.ts'
import { keyIdOf, keyIdsOf, unseal } from '../src/platform/secrets/seal.ts'
import { errorMessage } from './start-error.ts'

/** The project to check: if possible, one whose password a key of $1 has sealed. Reads all projects. */
const SAMPLE = `
  select ref, sealed_password as sealed, split_part(sealed_password, '.', 1) = any ($1) as known
    from projects where removed_at is null order by known desc limit 1`

/**
 * Describes why ENCRYPTION_KEY opens the secrets of no project; undefined if it opens some. The key itself is tried on one secret.
 */
export async function findKeyProblem(client: Pick<pg.Client, 'query'>, setting: string): Promise<string | undefined> {
  const ids = readKeyIds(setting)
  if (!Array.isArray(ids)) return ids
  const { rows } = await client.query(SAMPLE, [ids])
  const [{ ref, sealed, known } = {}] = rows as { ref?: string; sealed?: string; known?: boolean }[]
  if (ref === undefined || sealed === undefined) return undefined
  if (!known) return `ENCRYPTION_KEY lacks the key ${keyIdOf(sealed)}, which sealed the secrets of project ${ref}`
  const opened = unseal(setting, sealed, projectAssociatedData(ref, 'password'))
  return opened.then(
    () => undefined,
    () => `the key ${keyIdOf(sealed)} of ENCRYPTION_KEY does not open the secrets of project ${ref}`,
  )
}

/** Ids of the keys, or why the setting is not valid. */
export function readKeyIds(setting: string): string[] | string {
  try {
    return keyIdsOf(setting)
  } catch (error) {
    return errorMessage(error)
  }
}
