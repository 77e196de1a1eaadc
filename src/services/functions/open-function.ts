import { sql } from 'drizzle-orm'
import type { FUNCTION_STATUSES, ProjectStatus } from '../../model/tables/index.ts'
import { rowsOf } from '../../platform/db/client.ts'
import { createRowCache, type Reader, type RowKey, wantedProjects } from '../../platform/db/row-cache.ts'
import { type SealedTrust, sealedTrust, TRUST, TRUST_CHARACTERS_MAX } from '../gateway/trust.ts'
import { recordChange } from '../runtime/processes/program-changes.ts'

interface Row extends RowKey {
  projectStatus: ProjectStatus
  secretsGeneration: number
  sealedPassword: string
  /** Null if the project has no function with this slug. */
  deployed: {
    id: string
    status: (typeof FUNCTION_STATUSES)[number]
    version: number
    verifyJwt: boolean
    deploymentId: string
  } | null
}

/** A function with all that a call needs to check; `name` is its slug. */
export interface KnownFunction extends Row {
  trust: SealedTrust
}

const functions = createRowCache<KnownFunction>({
  read,
  isMissing: ({ deployed }) => deployed === null,
  charactersOf: ({ trust }) => trust.text.length,
  entriesMax: 20_000,
  charactersMax: TRUST_CHARACTERS_MAX,
})

/** Returns undefined if the project does not exist. */
export const openFunction = (createReader: () => Reader, ref: string, slug: string) =>
  functions.get(createReader, { ref, name: slug })

/** Evicts the functions of a project from the cache of this isolate: call it after changing them or their secrets. */
export function forgetFunction(ref: string): void {
  recordChange(ref)
  functions.invalidate(ref)
}

/** Only the first row of each project carries its trust settings, which are large and the same for all rows. */
async function read({ db }: Reader, wanted: readonly RowKey[]): Promise<KnownFunction[]> {
  const rows = await rowsOf<Row & { trust: string | null }>(
    db,
    sql`select w.ref, w.name, p.status as "projectStatus", p.secrets_generation as "secretsGeneration",
        p.sealed_password as "sealedPassword",
        case when row_number() over (partition by w.ref) = 1 then ${TRUST} end as trust,
        case when f.id is not null then json_build_object('id', f.id, 'status', f.status, 'version', f.version,
          'verifyJwt', f.verify_jwt, 'deploymentId', f.deployment_id) end as deployed
      from ${wantedProjects(wanted)}
      left join lateral (
        select * from functions where project_ref = w.ref and slug = w.name limit 1) f on true`,
  )
  const trusts = new Map(rows.flatMap(({ ref, trust }) => (trust === null ? [] : [[ref, sealedTrust(ref, trust)]])))
  return rows.map((row) => ({ ...row, trust: trusts.get(row.ref) as SealedTrust }))
}
