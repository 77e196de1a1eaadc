import { eq } from 'drizzle-orm'
import type { Writer } from '../platform/db/client.ts'
import {
  actionRuns,
  apiKeys,
  backups,
  customHostnames,
  functionDeletions,
  functionDeployments,
  functionSecrets,
  functions,
  gitConnections,
  jitGrants,
  notebooks,
  projectSettings,
  signingKeys,
  snippets,
  ssoProviders,
  thirdPartyAuths,
  vanitySubdomains,
} from './tables/index.ts'

/** Tables whose rows end with their project, in an order that their foreign keys allow. */
const TABLES = [
  ...[jitGrants, snippets, notebooks, backups],
  ...[functions, functionDeployments, functionDeletions, functionSecrets],
  ...[apiKeys, ssoProviders, thirdPartyAuths, signingKeys],
  ...[vanitySubdomains, customHostnames, gitConnections, projectSettings],
]

/** Deletes all that belongs to a removed project. The project itself stays, so that its ref is never given out again. */
export async function deleteProjectRows(tx: Writer, ref: string): Promise<void> {
  for (const table of TABLES) await tx.delete(table).where(eq(table.projectRef, ref))
  // The runs of a removed branch stay with its parent, which they may have changed, and GitHub links to their logs.
  await tx.delete(actionRuns).where(eq(actionRuns.parentRef, ref))
}
