import { readSettings } from '../settings.ts'
import { type Command, readArguments } from './arguments.ts'
import { restoreBackup } from './restore-backup.ts'

/** `npm run restore -- <place>`: creates a data folder for `npm start` from a backup of an installation. */
export async function restore({ args, env, print }: Command): Promise<void> {
  const given = await readArguments('restore', { takesPlaintext: false, args, env, print })
  if (!given) return
  const { place, passphrase } = given
  const { folder } = readSettings(env)
  const { at } = await restoreBackup({ place, folder, passphrase, print })
  print(`Complete: ${folder} holds the installation as of ${at}. Start it with \`npm start\`.`)
}
