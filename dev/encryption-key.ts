import type pg from 'pg'
import { projectAssociatedData } from '../src/model/secrets/associated-data.ts'
import { keyIdOf, keyIdsOf, unseal } from '../src/platform/secrets/seal.ts'
import { errorMessage } from './start-error.ts'

/** The project to check: the first one in the order of whether a key of $1 has sealed its password. Reads all projects. */
const sample = (order: 'asc' | 'desc') => `
  select ref, sealed_password as sealed, split_part(sealed_password, '.', 1) = any ($1) as known
    from projects where removed_at is null order by known ${order} limit 1`

/**
 * Describes why ENCRYPTION_KEY does not open the secrets of the projects; undefined if it does. `each` also reports a single
 * project whose key is lacking; `any` accepts that, because the other projects work. The key itself is tried on one secret.
 */
export async function findKeyProblem(
  client: Pick<pg.Client, 'query'>,
  setting: string,
  opens: 'each' | 'any',
): Promise<string | undefined> {
  const ids = readKeyIds(setting)
  if (!Array.isArray(ids)) return ids
  const { rows } = await client.query(sample(opens === 'each' ? 'asc' : 'desc'), [ids])
  const [{ ref, sealed, known } = {}] = rows as { ref?: string; sealed?: string; known?: boolean }[]
  if (ref === undefined || sealed === undefined) return undefined
  if (!known) return `ENCRYPTION_KEY lacks the key ${keyIdOf(sealed)}, which sealed the secrets of project ${ref}`
  const opened = unseal(setting, sealed, projectAssociatedData(ref, 'password'))
  return opened.then(
    () => undefined,
    () => `the key ${keyIdOf(sealed)} of ENCRYPTION_KEY does not open the secrets of project ${ref}`,
  )
}

function readKeyIds(setting: string): string[] | string {
  try {
    return keyIdsOf(setting)
  } catch (error) {
    return errorMessage(error)
  }
}
