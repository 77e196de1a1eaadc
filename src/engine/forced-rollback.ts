/** Begins the text of a failed cast by which a service rolls back its transaction in the same round trip. */
export const FORCED_ROLLBACK = 'pilothouse-rollback:'

const MESSAGE = new RegExp(
  `^invalid input syntax for type integer: "${FORCED_ROLLBACK}[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}:\\w+:\\w*"$`,
)

/** Whether the message reports such a cast, and no mistake of a caller. `role` is the login role of the services. */
export const isForcedRollback = (
  { message, fields }: { message: string; fields: Readonly<Record<string, string>> },
  role: string,
): boolean => fields.sql_state_code === '22P02' && fields.user_name === role && MESSAGE.test(message)
