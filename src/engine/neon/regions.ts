/** Neon's regions, by our region codes. */
export const NEON_REGIONS: Readonly<Record<string, string>> = {
  'us-east-1': 'aws-us-east-1',
  'us-east-2': 'aws-us-east-2',
  'us-west-2': 'aws-us-west-2',
  'eu-central-1': 'aws-eu-central-1',
  'eu-west-2': 'aws-eu-west-2',
  'ap-southeast-1': 'aws-ap-southeast-1',
  'ap-southeast-2': 'aws-ap-southeast-2',
  'sa-east-1': 'aws-sa-east-1',
}
