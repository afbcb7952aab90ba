"""The verbs of the command line beside `up`: inspection, comparison, diagnosis. Each module is one verb."""
