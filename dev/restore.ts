import { readArguments } from './backup/arguments.ts'
import { restoreBackup } from './backup/restore-backup.ts'
import { describeFailure } from './lifetime.ts'
import { readSettings } from './settings.ts'

/** `npm run restore -- <place>`: creates a data folder for `npm start` from a backup of an installation. */
async function main(): Promise<void> {
  const { env } = process
  const { place, passphrase } = await readArguments('restore', { takesPlaintext: false, env })
  const { folder } = readSettings(env)
  const { at } = await restoreBackup({ place, folder, passphrase, print: console.log })
  console.log(`Complete: ${folder} holds the installation as of ${at}. Start it with \`npm start\`.`)
}

main().catch((error) => {
  console.error(describeFailure(error))
  // An interrupted restore may still be waiting for the place of the backup.
  process.exit(1)
})
