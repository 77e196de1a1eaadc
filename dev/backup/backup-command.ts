import { databaseProblem } from '../database-problem.ts'
import { StartError } from '../start-error.ts'
import { type Command, readArguments } from './arguments.ts'
import { ownBucketProblem } from './bucket-problem.ts'
import { takeBackup } from './take-backup.ts'

const HINT = 'If `npm start` was given PILOTHOUSE_DATA, give it here too.'

/** `npm run backup -- <place>`: backs up the whole installation as of one moment, while it keeps running. */
export async function backup({ args, env, print }: Command): Promise<void> {
  const given = await readArguments('backup', { takesPlaintext: true, args, env, print })
  if (!given) return
  const { text, place, passphrase, isPlaintext } = given
  if (passphrase === undefined && !isPlaintext) {
    throw new StartError(
      'Set BACKUP_PASSPHRASE, or give --key-file <file>: the keys of the installation are encrypted with it. Without both, --plaintext-keys stores them as they are.',
    )
  }
  const { at, leftOut } = await takeBackup({ place, env, passphrase, print }).catch((error) => {
    // Both problems have the same error codes of Node.
    throw databaseProblem(ownBucketProblem(error), HINT)
  })
  if (leftOut.length > 0)
    throw new StartError(
      `Incomplete: ${text} holds the installation as of ${at} without the projects ${leftOut.join(', ')}.`,
    )
  print(`Complete: ${text} holds the installation as of ${at}`)
}
