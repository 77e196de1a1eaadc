/** A project ref. */
export const REF = /^[a-z]{20}$/

/** A UUID as the database writes it, in lower case. */
export const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/
