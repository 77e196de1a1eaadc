import { isDatabaseError } from '../database-errors.ts'
import { EngineUnavailable } from '../engine-errors.ts'
import { SettingsRefused } from '../settings.ts'

const INVALID_VALUE = '22023'
/** Neon's proxy refuses weak passwords without a SQLSTATE of its own. */
const TOO_WEAK =
  /password.*(weak|short|strong|strength|entropy|guess|complex)|(weak|insecure|stronger|longer) password/i

/** Reports a password that Neon finds too weak as the caller's error. */
export function passwordFailure(error: unknown): never {
  if (!isDatabaseError(error)) throw error
  const { code, message } = error
  if (code === INVALID_VALUE || TOO_WEAK.test(message)) {
    throw new SettingsRefused([{ setting: 'password', reason: message }])
  }
  throw new EngineUnavailable(message, { code, cause: error })
}
