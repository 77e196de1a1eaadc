/** Neon's compute units (4 GB of memory each) for each instance size; Neon has none larger than 56. */
const UNITS: Readonly<Record<string, number>> = {
  pico: 0.25,
  nano: 0.25,
  micro: 0.25,
  small: 0.5,
  medium: 1,
  large: 2,
  xlarge: 4,
  '2xlarge': 8,
  '4xlarge': 16,
  '8xlarge': 32,
  '12xlarge': 48,
}

export const NEON_SIZES: ReadonlySet<string> = new Set(Object.keys(UNITS))

/** Limits for a compute of a fixed size, which still suspends when idle. */
export function limitsOf(size: string) {
  const units = UNITS[size]
  if (units === undefined) throw new Error(`Neon has no size ${size}`)
  return { autoscaling_limit_min_cu: units, autoscaling_limit_max_cu: units }
}
