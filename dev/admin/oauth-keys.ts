import { oauthSigningKeys } from '../../src/model/tables/index.ts'
import type { ControlDb } from '../seed.ts'
import { change } from './change.ts'
import type { Command } from './command.ts'

export const oauthKeyCommands: Record<string, Command> = {
  'oauth-keys rotate': {
    summary: 'Replace the key that signs ID tokens.',
    args: [],
    run: rotate,
  },
}

function rotate(db: ControlDb): Promise<string> {
  return change(db, async ({ tx, trace }) => {
    const deleted = await tx.delete(oauthSigningKeys).returning({ id: oauthSigningKeys.id })
    await trace({ action: 'oauth_key.rotate', detail: { keys: deleted.map(({ id }) => id) } })
    return 'the next ID token is signed with a new key; those that were signed before can no longer be verified'
  })
}
