/** A request that is answered with an error of ours, in the form of those of Postgres. */
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
