import { readArguments } from './backup/arguments.ts'
import { ownBucketProblem } from './backup/bucket-problem.ts'
import { takeBackup } from './backup/take-backup.ts'
import { databaseProblem } from './database-problem.ts'
import { describeFailure } from './lifetime.ts'
import { StartError } from './start-error.ts'

const HINT = 'If `npm start` was given PILOTHOUSE_DATA, give it here too.'

/** `npm run backup -- <place>`: backs up the whole installation as of one moment, while it keeps running. */
async function main(): Promise<void> {
  const { env } = process
  const { text, place, passphrase, isPlaintext } = await readArguments('backup', { takesPlaintext: true, env })
  if (passphrase === undefined && !isPlaintext) {
    throw new StartError(
      'Set BACKUP_PASSPHRASE, or give --key-file <file>: the keys of the installation are encrypted with it. Without both, --plaintext-keys stores them as they are.',
    )
  }
  const { at } = await takeBackup({ place, env, passphrase, print: console.log })
  console.log(`Complete: ${text} holds the installation as of ${at}`)
}

main().catch((error) => {
  // Both problems have the same error codes of Node.
  console.error(describeFailure(databaseProblem(ownBucketProblem(error), HINT)))
  process.exitCode = 1
})
