import { readSettings } from '../settings.ts'
import { StartError } from '../start-error.ts'
import { type Command, readArguments } from './arguments.ts'
import { restoreBackup } from './restore-backup.ts'

/** `npm run restore -- <place>`: creates a data folder for `npm start` from a backup of an installation. */
export async function restore({ args, env, print }: Command): Promise<void> {
  const given = await readArguments('restore', { takesPlaintext: false, args, env, print })
  if (!given) return
  const { place, passphrase } = given
  const { folder } = readSettings(env)
  const { at, lost } = await restoreBackup({ place, folder, passphrase, print })
  if (lost.length > 0)
    throw new StartError(
      `Incomplete: ${folder} holds the installation as of ${at} without the databases of ${lost.join(', ')}. \`npm start\` starts it.`,
    )
  print(`Complete: ${folder} holds the installation as of ${at}. Start it with \`npm start\`.`)
}
