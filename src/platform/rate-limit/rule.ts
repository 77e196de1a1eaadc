export interface Rule {
  /** The counter; requests under different names do not count against each other. */
  name: string
  requests: number
  windowMs: number
}

export interface Decision {
  allowed: boolean
  limit: number
  remaining: number
  /** How long a window of the deciding rule is, and until when this one lasts, in milliseconds. */
  windowMs: number
  resetMs: number
}
