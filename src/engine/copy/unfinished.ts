import type { ProjectNames } from '../names.ts'
import { quoteLiteral } from '../names.ts'
import type { Session } from '../session.ts'

/** The comment of a database until its copy is whole: what bears it is dropped and begun anew. */
export const UNFINISHED = 'This copy is not finished'

/** Nobody but the engine gets in until the copy is whole; from its first moment it can be told from one that is. */
export async function createUnfinished(
  admin: Session,
  { database, owner, runner }: ProjectNames,
  { template, strategy }: { template: string; strategy: 'WAL_LOG' | 'FILE_COPY' },
): Promise<void> {
  await admin.rows(
    `CREATE DATABASE ${database} TEMPLATE ${template} OWNER ${owner} STRATEGY ${strategy}
       ALLOW_CONNECTIONS false CONNECTION LIMIT 0`,
  )
  await admin.rows(
    [
      `COMMENT ON DATABASE ${database} IS ${quoteLiteral(UNFINISHED)}`,
      `REVOKE ALL ON DATABASE ${database} FROM PUBLIC`,
      `REVOKE CONNECT ON DATABASE ${database} FROM ${owner}`,
      `GRANT CONNECT ON DATABASE ${database} TO ${runner}`,
      `ALTER DATABASE ${database} WITH ALLOW_CONNECTIONS true CONNECTION LIMIT -1`,
    ].join('; '),
  )
}
