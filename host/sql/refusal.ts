/** Refuses a request with an error in the format of Postgres's errors. */
export class Refusal extends Error {
  readonly severity = 'ERROR'
  /** SQLSTATE */
  readonly code: string
  readonly status: number
  constructor(code: string, message: string, status = 400) {
    super(message)
    this.code = code
    this.status = status
  }
}

export const clientGone = () => new Refusal('57014', 'the client has disconnected')
