import { EngineUnavailable } from '../engine.ts'
import { isDatabaseError } from '../failure.ts'
import { SettingsRefused } from '../settings.ts'

const INVALID_VALUE = '22023'
/** Neon's own refusal comes from beyond Postgres and has no code for it. */
const TOO_WEAK =
  /password.*(weak|short|strong|strength|entropy|guess|complex)|(weak|insecure|stronger|longer) password/i

/** A password that Neon finds too weak is the caller's error; any other failure is not. */
export function passwordFailure(error: unknown): never {
  if (!isDatabaseError(error)) throw error
  const { code, message } = error
  if (code === INVALID_VALUE || TOO_WEAK.test(message)) {
    throw new SettingsRefused([{ setting: 'password', reason: message }])
  }
  throw new EngineUnavailable(message, { code, cause: error })
}
